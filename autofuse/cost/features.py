"""A group as numbers, for models that predict its time.

Features say what one call of the kernel moves, computes and iterates over; nothing in them names a
node or a device, so equal groups have equal features in every graph. Sizes are log2(1 + n): times
are products of sizes, and a tree splits either scale alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from autofuse.cost.traffic import group_traffic
from autofuse.cost.work import Work, group_work
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.reduction import reduced_axes
from autofuse.ops.spec import Family, Motion
from autofuse.plan.forms import Form
from autofuse.plan.groups import host_loop, is_inline, reads
from autofuse.plan.legality import check_group
from autofuse.plan.types import FusionGroup

Features = dict[str, float]

# Name and meaning of every column, in the order a model sees them.
COLUMNS: Mapping[str, str] = {
    "bound": "log2 of the kernel's lower bound in nanoseconds",
    "read": "log2 bytes read, by the traffic model",
    "written": "log2 bytes written",
    "least": "log2 bytes that cannot be avoided",
    "cheap": "log2 least operations that are no special functions",
    "special": "log2 least special functions (exp, log, ...)",
    "contraction": "log2 least operations of contractions",
    "repeated": "log2 operations with those that only repeat a value",
    "moved_share": "bytes over bytes plus operations, 0 to 1",
    "items": "log2 of independent items, of all segments",
    "item_bytes": "log2 bytes moved per item",
    "innermost": "log2 extent of the innermost axis of the largest output",
    "segments": "parts that share no domain",
    "rows": "share of the segments in the block-per-row schedule",
    "trips": "log2 iterations of counted loops",
    "launches": "log2 kernels that a host loop runs in all",
    "nodes": "nodes computed",
    "reductions": "reductions",
    "reduced": "log2 of the longest reduction",
    "reduced_last": "reductions along an innermost axis",
    "scans": "running sums and sorting",
    "contractions": "contractions",
    "contracted": "log2 of the longest contraction",
    "randoms": "random draws",
    "broadcasts": "broadcasts",
    "transposes": "transposes",
    "gathers": "gathers and scatters",
    "pieces": "concatenations, pads, slices and reversals",
    "outputs": "values written",
    "operands": "values read",
    "rank": "highest rank of what is read or written",
    "wide": "bytes per element of the widest type",
    "narrow": "bytes per element of the narrowest type",
    "floating": "share of the bytes read and written that are of floating types",
}


def group_features(graph: Graph, group: FusionGroup, bound_us: float) -> Features:
    """The features of a group by name (`COLUMNS`), all finite; `bound_us`: its lower bound in
    microseconds. Independent of names and node order. A host loop has those of its loop."""
    values = [*reads(graph, group.nodes), *group.outputs]
    found = dict.fromkeys(COLUMNS, 0.0)
    found |= _amounts(graph, group)
    found |= _forms(graph, group)
    found |= _ops(graph, group)
    found |= _types(graph, values)
    found["bound"] = _log(1e3 * bound_us)
    found["outputs"], found["operands"] = len(group.outputs), len(values) - len(group.outputs)
    found["item_bytes"] = max(0.0, max(found["read"], found["written"]) - found["items"])
    return {name: float(found[name]) for name in COLUMNS}


def vector(features: Mapping[str, float]) -> list[float]:
    """The features in the order of COLUMNS; what is missing is nan."""
    return [features.get(name, math.nan) for name in COLUMNS]


def kind_of_work(graph: Graph, group: FusionGroup) -> tuple[tuple[str, ...], int]:
    """The products of a group by the types of their operands, and its reductions (two stand for
    more): what decides first how far above its lower bound a kernel lies."""
    made = [graph[n] for n in group.nodes]
    products = (n for n in made if n.spec.family is Family.CONTRACTION)
    types = sorted(" ".join(str(graph.type_of(v)) for v in n.inputs) for n in products)
    reductions = sum(n.spec.family is Family.REDUCTION for n in made)
    return tuple(types), min(2, reductions)


def _log(amount: float) -> float:
    return math.log2(1.0 + amount)


def _amounts(graph: Graph, group: FusionGroup) -> Features:
    traffic = group_traffic(graph, group)
    work: Work = group_work(graph, group.nodes, group.outputs)
    total = traffic.bytes + traffic.flops
    return {
        "read": _log(traffic.read_bytes),
        "written": _log(traffic.written_bytes),
        "least": _log(work.nbytes),
        "cheap": _log(work.cheap),
        "special": _log(work.special),
        "contraction": _log(work.products),
        "repeated": _log(traffic.flops),
        "moved_share": traffic.bytes / total if total else 0.0,
    }


def _forms(graph: Graph, group: FusionGroup) -> Features:
    """What the kernel iterates over; zeros where the loop is run by the host or no kernel is
    legal."""
    main = max((graph.type_of(v) for v in group.outputs), key=lambda t: (t.size, t.shape))
    innermost = _log(main.shape[-1] if main.shape else 1)
    if group.body is not None:
        _, trips = host_loop(graph, group)
        return {"innermost": innermost, "launches": _log(trips * len(group.body.groups))}
    verdict = check_group(graph, group.nodes, group.outputs, placed=True)
    forms: Sequence[Form] = verdict if isinstance(verdict, tuple) else ()
    rows = sum(form.kind == "row" for form in forms)
    return {
        "innermost": innermost,
        "items": _log(sum(form.items for form in forms)),
        "segments": float(len(forms)),
        "rows": rows / max(1, len(forms)),
    }


def _ops(graph: Graph, group: FusionGroup) -> Features:
    nodes = [n for n in group.nodes if not is_inline(graph, n)]
    families = Counter(graph[n].spec.family for n in nodes)
    motions = Counter(graph[n].spec.motion for n in nodes)
    folds = [n for n in nodes if graph[n].spec.family is Family.REDUCTION]
    products = [n for n in nodes if graph[n].spec.family is Family.CONTRACTION]
    loops = [n for n in nodes if graph[n].spec.family is Family.CONTROL]
    return {
        "nodes": float(len(nodes)),
        "reductions": float(len(folds)),
        "reduced": max((_log(_terms(graph, n)) for n in folds), default=0.0),
        "reduced_last": float(sum(_is_last(graph, n) for n in folds)),
        "scans": float(families[Family.SCAN] + families[Family.SORT]),
        "contractions": float(len(products)),
        "contracted": max((_log(_terms(graph, n)) for n in products), default=0.0),
        "randoms": float(families[Family.RANDOM]),
        "trips": max((_log(_trips(graph, n)) for n in loops), default=0.0),
        "broadcasts": float(motions[Motion.REPEAT]),
        "transposes": float(motions[Motion.PERMUTE]),
        "gathers": float(motions[Motion.PICK]),
        "pieces": float(motions[Motion.CUT]),
    }


def _trips(graph: Graph, node: int) -> int:
    """Iterations of a loop; one where data decide."""
    return int(graph.call(node)["trip"]) if is_counted(graph[node].op) else 1


def _terms(graph: Graph, node: int) -> int:
    """Elements or products that one result of a node is folded from."""
    return graph[node].spec.terms(graph.call(node))


def _is_last(graph: Graph, node: int) -> bool:
    """Whether a reduction folds the innermost axis of its operand."""
    return graph.type_of(graph[node].inputs[0]).rank - 1 in reduced_axes(graph.call(node))


def _types(graph: Graph, values: Sequence[Value]) -> Features:
    types = [graph.type_of(v) for v in values]
    widths = [t.dtype.itemsize for t in types]
    total = sum(t.nbytes for t in types)
    return {
        "rank": float(max(t.rank for t in types)),
        "wide": float(max(widths)),
        "narrow": float(min(widths)),
        "floating": sum(t.nbytes for t in types if t.dtype.is_float) / max(1, total),
    }
