"""What fused stencils compute more than once, and what keeping values in tiles costs instead.

A value that is read at shifted places is computed at every index that some item needs it at, or
once for each tile of rows and the halo around it (`autofuse.plan.schedules.halo`), in scratch.
Lower bounds count neither: a compiler may share what neighbouring lanes compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from autofuse.cost.amounts import Work
from autofuse.cost.work import group_work
from autofuse.graph.types import Graph, Value
from autofuse.order import closure
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.fusion.overwriting import stored
from autofuse.plan.parameters import HALO
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.halo import HaloRows, kept_values, tile_extent, tile_rows
from autofuse.plan.schedules.multiplicity import index_counts, may_repeat
from autofuse.plan.types import FusionGroup, LaunchConfig

# The repeated computations of a kernel that computes each value once.
NOTHING = 0
# Operations that vectors would do in the time of one that lanes along a row repeat, each at a place
# of its own (measured on Zen 5: steps of a lattice in one kernel, 128 times their bounds).
LANE_BY_LANE = 64.0


def repeated_work(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> Work:
    """Arithmetic beyond once for each element of each value."""
    found = Work()
    for form in _repeating(graph, group):
        again = _in_rows(graph, form) if form.kind == "row" else _by_items(graph, form, launch)
        for each in again:
            found += each
    return found


def _in_rows(graph: Graph, form: Form) -> Iterator[Work]:
    """What lanes that walk along a row compute again, each at a place of its own."""
    for value, count in index_counts(graph, form).counts.items():
        if count > 1 and value.node in form.nodes:
            once = group_work(graph, (value.node,), (value,))
            yield once.computing((count - 1) * LANE_BY_LANE)


def _by_items(graph: Graph, form: Form, launch: LaunchConfig) -> Iterator[Work]:
    """What items compute again, or tiles of them."""
    rows = tile_rows(graph, form, HALO.of(launch))
    again = _times_in_tiles(graph, form, rows) if rows else _times_by_items(graph, form)
    for n, times in again.items():
        if times > 1:
            yield group_work(graph, (n,), (Value(n),)).computing(times - 1)


def kept_bytes(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> Iterator[tuple[int, int]]:
    """Tiles, and the bytes that each writes to scratch and reads again, by segment."""
    for form in _repeating(graph, group):
        rows = tile_rows(graph, form, HALO.of(launch)) if form.kind == "item" else 0
        if rows:
            shares = ((k, _rows_of(form, k, rows)) for k in kept_values(graph, form))
            each = sum(
                count * graph.type_of(k.value).nbytes // form.parallel[0] for k, count in shares
            )
            yield _tiles(form, rows), each


def _repeating(graph: Graph, group: FusionGroup) -> Iterator[Form]:
    """The segments of a kernel that may compute a value more than once."""
    if not may_repeat(graph, group.nodes, NOTHING):
        return
    verdict = check_group(graph, group.nodes, group.outputs, placed=True)
    yield from () if isinstance(verdict, Refusal) else verdict


def _times_by_items(graph: Graph, form: Form) -> dict[int, float]:
    """How often each node is computed where every item computes all that it needs."""
    counts = index_counts(graph, form).counts
    items = _items(graph, form)
    return {n: counts.get(Value(n), 1) * items / max(1, graph[n].types[0].size) for n in form.nodes}


def _items(graph: Graph, form: Form) -> int:
    """Items that compute something: of an array of which a window is written in place, its own."""
    made = [stored(graph, form.nodes, value) for value in form.outputs]
    same = made == list(form.outputs)
    return form.items if same else max(graph.type_of(value).size for value in made)


def _times_in_tiles(graph: Graph, form: Form, rows: int) -> dict[int, float]:
    """As `_times_by_items` for tiles: each node between two kept values as often as the later."""
    kept = {k.value: k for k in kept_values(graph, form)}
    found = dict.fromkeys(form.nodes, 0.0)
    for value in (*kept, *(v for v in form.outputs if v not in kept)):
        count = _rows_of(form, kept[value], rows) if value in kept else 0
        times = _tiles(form, rows) * count / form.parallel[0] if count else 1.0
        for n in _between(graph, form, value, kept):
            found[n] += times
    return found


def _between(graph: Graph, form: Form, value: Value, kept: Collection[Value]) -> set[int]:
    """The nodes that a value is computed by, from kept values on."""
    inside = frozenset(form.nodes)

    def near(n: int) -> Iterator[int]:
        return (x.node for x in graph[n].inputs if x.node in inside and x not in kept)

    return closure((value.node,), near)


def _rows_of(form: Form, kept: HaloRows, rows: int) -> int:
    """Rows of a kept value that one tile computes."""
    return min(tile_extent(form, rows) + kept.before + kept.behind, form.parallel[0])


def _tiles(form: Form, rows: int) -> int:
    return -(-form.parallel[0] // tile_extent(form, rows))
