"""A fusion plan as a picture: a dataflow graph in layers, each box marked with its kernel."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.order import depths, stable_order
from autofuse.report.model import ReportError
from autofuse.report.svg import GROUPS, drawing, label, path, tag, words

MOST_BOXES = 150
_PER_ROW = 8
_SWEEPS = 4
_BOX = (112.0, 40.0)
_GAP = (14.0, 34.0)
_EDGE = 12.0
_SAID = 60

_Rows = list[list[int]]


@dataclass(frozen=True, slots=True)
class Box:
    """A node of the picture. `group` is the number of its kernel, negative for what no kernel
    computes (inputs, constants); a node computed in several kernels is several boxes. `detail`
    is its tooltip."""

    id: int
    label: str
    group: int
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Edge:
    """Data flows from box `source` to box `target`."""

    source: int
    target: int


def plan_svg(
    boxes: Sequence[Box],
    edges: Sequence[Edge],
    title: str = "Fusion plan",
    most_boxes: int = MOST_BOXES,
) -> str:
    """The picture, one unit a pixel; it also stands alone as an SVG file.

    Boxes lie in layers by the longest path from a source; boxes of one kernel share a fill and
    bear its number. A graph of more than `most_boxes` boxes is drawn with one box per kernel.
    Raises ReportError on repeated ids, edges to nowhere and cycles.
    """
    _check(boxes, edges)
    kernels = len({b.group for b in boxes if b.group >= 0})
    said = f"{len(boxes)} nodes in {kernels} kernels"
    if len(boxes) > most_boxes:
        boxes, edges = by_kernel(boxes, edges)
        said += ", one box per kernel"
    pairs = sorted({(e.source, e.target) for e in edges if e.source != e.target})
    rows = _rows(boxes, pairs)
    columns = max((len(row) for row in rows), default=1)
    width = max(columns * (_BOX[0] + _GAP[0]) - _GAP[0] + 2 * _EDGE, 240.0)
    height = max(len(rows) * (_BOX[1] + _GAP[1]) - _GAP[1] + 2 * _EDGE, 60.0)
    places = _places(rows, width)
    return drawing(
        width,
        height,
        title,
        f"{said}. {_kernels_text(boxes)}",
        *(_edge(places[s], places[t]) for s, t in pairs),
        *(_box(b, *places[b.id]) for b in boxes),
        natural=True,
    )


def by_kernel(
    boxes: Sequence[Box], edges: Sequence[Edge]
) -> tuple[tuple[Box, ...], tuple[Edge, ...]]:
    """The same graph with one box per kernel; boxes of no kernel that read nothing are left out."""
    members = _members(boxes)
    reading = {e.target for e in edges}
    merged = [
        Box(group, f"{len(found)} nodes", group, _count_text(found))
        for group, found in sorted(members.items())
    ]
    # Boxes of no kernel keep boxes of their own: merged they could close a cycle.
    free = [b for b in boxes if b.group < 0 and b.id in reading]
    first = max(members, default=-1) + 1
    place = {b.id: b.group for b in boxes if b.group >= 0}
    place |= {b.id: first + i for i, b in enumerate(free)}
    merged += [Box(place[b.id], b.label, b.group, b.detail) for b in free]
    return tuple(merged), _between(place, edges)


def _members(boxes: Sequence[Box]) -> dict[int, list[Box]]:
    """Boxes by kernel."""
    found: dict[int, list[Box]] = {}
    for one in boxes:
        if one.group >= 0:
            found.setdefault(one.group, []).append(one)
    return found


def _between(place: Mapping[int, int], edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """The edges of boxes that were merged into others, without those inside of one."""
    ends = {(place.get(e.source), place.get(e.target)) for e in edges}
    pairs = {(a, b) for a, b in ends if a is not None and b is not None and a != b}
    return tuple(Edge(*pair) for pair in sorted(pairs))


def layers(ids: Sequence[int], pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    """For each id the length of the longest path that ends there. Raises ReportError on a cycle."""
    before: dict[int, list[int]] = {one: [] for one in ids}
    for source, target in pairs:
        before[target].append(source)
    order = stable_order(ids, before.__getitem__)
    if len(order) < len(ids):
        raise ReportError("the plan cannot be drawn: its boxes depend on each other in a circle")
    return depths(order, before.__getitem__)


def _check(boxes: Sequence[Box], edges: Sequence[Edge]) -> None:
    ids = Counter(b.id for b in boxes)
    for one, count in ids.items():
        if count > 1:
            raise ReportError(f"the plan cannot be drawn: two boxes have the id {one}")
    for edge in edges:
        if edge.source not in ids or edge.target not in ids:
            raise ReportError(
                f"the plan cannot be drawn: no box at one end of {edge.source} -> {edge.target}"
            )


def _ranks(ids: Sequence[int], pairs: Sequence[tuple[int, int]]) -> _Rows:
    """Ids by layer."""
    depth = layers(ids, pairs)
    ranks: _Rows = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for one in ids:
        ranks[depth[one]].append(one)
    return ranks


def _rows(boxes: Sequence[Box], pairs: Sequence[tuple[int, int]]) -> _Rows:
    """Ids by layer, those of a layer ordered so that edges are short; wide layers take several
    rows, so that no picture is wider than a screen."""
    ids = sorted(b.id for b in boxes)
    ranks = _ranks(ids, pairs)
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for source, target in pairs:
        above[target].append(source)
        below[source].append(target)
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        _sweep(ranks if downward else ranks[::-1], above if downward else below)
    return [
        _even(rank, i, n) for rank in ranks for n in [-(-len(rank) // _PER_ROW)] for i in range(n)
    ]


def _even(rank: Sequence[int], row: int, rows: int) -> list[int]:
    """Part `row` of a layer cut into `rows` parts of nearly equal length."""
    return list(rank[len(rank) * row // rows : len(rank) * (row + 1) // rows])


def _sweep(ranks: _Rows, neighbours: Mapping[int, Sequence[int]]) -> None:
    """Order each layer by the mean place of its neighbours in the layers gone through before."""
    place: dict[int, float] = {}
    for rank in ranks:
        # A box without neighbours stays where it is.
        for i, one in enumerate(rank):
            place[one] = (i + 0.5) / len(rank)
        wish = {
            one: sum(place[n] for n in neighbours[one]) / len(neighbours[one])
            if neighbours[one]
            else place[one]
            for one in rank
        }
        rank.sort(key=lambda one: (wish[one], one))
        for i, one in enumerate(rank):
            place[one] = (i + 0.5) / len(rank)


def _places(rows: _Rows, width: float) -> dict[int, tuple[float, float]]:
    """Upper left corner of each box; rows are centred."""
    found = {}
    for r, row in enumerate(rows):
        used = len(row) * (_BOX[0] + _GAP[0]) - _GAP[0]
        for c, one in enumerate(row):
            left = (width - used) / 2 + c * (_BOX[0] + _GAP[0])
            found[one] = (left, _EDGE + r * (_BOX[1] + _GAP[1]))
    return found


def _edge(source: tuple[float, float], target: tuple[float, float]) -> str:
    """A curve from the foot of one box to the head of the other, with an arrow head."""
    x0, y0 = source[0] + _BOX[0] / 2, source[1] + _BOX[1]
    x1, y1 = target[0] + _BOX[0] / 2, target[1]
    middle = (y0 + y1) / 2
    curve = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1 - 6:.1f}"
    head = [(x1, y1), (x1 - 3.5, y1 - 7), (x1 + 3.5, y1 - 7), (x1, y1)]
    return tag("path", d=curve, class_="af-edge") + path(head, class_="af-tip")


def _box(box: Box, left: float, top: float) -> str:
    if box.group < 0:
        style, sign, who = "af-free", "", "not in a kernel"
    else:
        style, who = f"af-g{box.group % GROUPS}", f"kernel {box.group}"
        sign = label(left + 6, top + 14, f"K{box.group}", class_="af-small af-strong")
    tip = f"{box.label}: {who}" + (f"; {box.detail}" if box.detail else "")
    # Long names are cut to the box; the tooltip has them whole.
    shown = box.label if len(box.label) <= 15 else box.label[:14] + "…"
    middle = left + _BOX[0] / 2
    text = tag(
        "text", words(shown), x=middle, y=top + (24 if not sign else 31), text_anchor="middle"
    )
    frame = tag("rect", class_=style, x=left, y=top, width=_BOX[0], height=_BOX[1], rx=6)
    return tag("g", tag("title", words(tip)), frame, sign, text)


def _count_text(boxes: Sequence[Box]) -> str:
    """Labels with how often they occur, the most frequent first."""
    counted = sorted(Counter(b.label for b in boxes).items(), key=lambda item: (-item[1], item[0]))
    shown = [name if count == 1 else f"{name} ×{count}" for name, count in counted[:12]]
    return ", ".join(shown) + (", …" if len(counted) > 12 else "")


def _kernels_text(boxes: Sequence[Box]) -> str:
    """What each kernel holds, in words, for those who cannot see the picture."""
    members: dict[int, list[Box]] = {}
    for one in boxes:
        if one.group >= 0:
            members.setdefault(one.group, []).append(one)
    said = []
    for group, found in sorted(members.items())[:_SAID]:
        merged = len(found) == 1 and found[0].detail and found[0].id == group
        said.append(f"Kernel {group}: {found[0].detail if merged else _count_text(found)}.")
    return " ".join(said) + (" And more." if len(members) > _SAID else "")
