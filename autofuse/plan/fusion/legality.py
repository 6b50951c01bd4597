"""May these nodes be one kernel, and is this plan a plan? Every refusal names its rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.patience import look
from autofuse.plan.fusion.barriers import stands_alone
from autofuse.plan.fusion.clusters import connected, is_convex
from autofuse.plan.fusion.groups import host_loop, is_source, reads
from autofuse.plan.fusion.products import product_of
from autofuse.plan.fusion.reshaped import without_reshapes
from autofuse.plan.fusion.whole_loops import loop_refusal
from autofuse.plan.schedules.axis_facts import RUNS
from autofuse.plan.schedules.forms import (
    LOCAL,
    REDUCTION_ROOTS,
    ROW_SCRATCH,
    Form,
    local_shape,
    single_form,
)
from autofuse.plan.schedules.halo import kept_values
from autofuse.plan.schedules.multiplicity import MOST_REPEATED, index_counts, may_repeat
from autofuse.plan.schedules.online import online_of
from autofuse.plan.schedules.tiles import is_filter, row_scratch, tiles_of
from autofuse.plan.types import FusionGroup, FusionPlan, PlanError, Refusal

MAX_BUFFERS = 256
MAX_NODES = 4096
# Terms of a contraction that one item may sum by itself.
SHORT_SUM = 32
# Rows that products of several columns need to be worth a kernel that owns whole rows.
LEAST_ROWS = 16
# Below this many elements losing parallel items cannot matter.
SMALL_WORK = 1 << 14

GroupVerdict = tuple[Form, ...] | Refusal


def check_group(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...], *, placed: bool = False
) -> GroupVerdict:
    """The forms of the kernel computing `outputs` from `nodes` (one per segment), or why not.

    `placed`: the caller knows that nothing the group reads depends on what it writes."""
    look()
    return _unfit(graph, nodes, outputs, placed) or _forms(graph, nodes, outputs)


@lru_cache(maxsize=4096)
def refusal_of(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> Refusal | None:
    """Why a group cannot be one kernel, or None. Remembered: rules ask about the same groups."""
    look()
    unfit = _unfit(graph, nodes, outputs, placed=False)
    if unfit is not None or is_plain(graph, nodes, outputs):
        return unfit
    found = _forms(graph, nodes, outputs)
    return found if isinstance(found, Refusal) else None


def is_plain(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> bool:
    """No reduction roots, one output shape and few shifted reads: every output element is computed
    where it is written, so the group has a form, and one that nothing refuses."""
    if len({graph.type_of(v).shape for v in outputs}) != 1:
        return False
    rooted = any(graph[n].spec.family in REDUCTION_ROOTS for n in nodes)
    return not rooted and not may_repeat(graph, nodes)


def _unfit(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...], placed: bool
) -> Refusal | None:
    """What refuses a group whatever its form."""
    if not nodes or not outputs:
        return Refusal("empty", "a group needs nodes and outputs")
    large = _too_large(graph, nodes, outputs)
    if large is not None:
        return large
    if any(is_source(graph, n) for n in nodes):
        return Refusal("source", "inputs and constants are not computed by kernels")
    if not placed and not is_convex(graph, nodes, outputs):
        return Refusal("convex", "a value it reads depends on a value it writes")
    barrier = _barrier(graph, nodes) if len(nodes) > 1 else None
    if barrier is not None:
        return None if _is_product(graph, nodes, outputs) else barrier
    return _update_refusal(graph, frozenset(nodes))


def _barrier(graph: Graph, nodes: tuple[int, ...]) -> Refusal | None:
    """Why the first node that stands alone does so."""
    found = (stands_alone(graph, n) for n in nodes)
    return next((barrier for barrier in found if barrier is not None), None)


def _too_large(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> Refusal | None:
    if len(nodes) > MAX_NODES:
        return Refusal("size", f"{len(nodes)} nodes exceed the limit of {MAX_NODES}")
    buffers = len(reads(graph, nodes)) + len(outputs)
    if buffers > MAX_BUFFERS:
        return Refusal("buffers", f"{buffers} buffers exceed the limit of {MAX_BUFFERS}")
    return None


def _update_refusal(graph: Graph, nodes: frozenset[int]) -> Refusal | None:
    """Two updates of one large array each write a window in place; in one kernel, all of it."""
    for n in nodes:
        node = graph[n]
        if not node.spec.overwrites or node.types[0].size <= SMALL_WORK:
            continue
        before = node.inputs[0].node
        again = before in nodes and graph[before].spec.overwrites
        if again and graph[before].inputs[0].node not in nodes:
            return Refusal("update", f"%{before} and %{n} each write a window of one array")
    return None


def _is_product(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> bool:
    """Whether a library call does all of it, moves of operands included."""
    found = product_of(graph, nodes)
    return found is not None and outputs == (found.output,)


@lru_cache(maxsize=4096)
def _forms(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> GroupVerdict:
    """Remembered: a launch space and what estimates a kernel ask about the same groups."""
    found = _shaped_forms(graph, nodes, outputs)
    if not isinstance(found, Refusal):
        return found
    # What these write has axes of its own, and nothing else may read it before it is whole.
    rooted = any(graph[n].spec.family in (Family.CONTRACTION, Family.SCATTER) for n in nodes)
    plain = without_reshapes(graph, nodes, outputs) if rooted else None
    instead = _shaped_forms(graph, *plain) if plain is not None else found
    return found if isinstance(instead, Refusal) else instead


def _shaped_forms(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> GroupVerdict:
    whole = single_form(graph, nodes, outputs)
    refused = _refusal(graph, whole) if whole is not None else None
    segments = components(graph, nodes, outputs)
    if len(segments) == 1:
        if whole is None:
            return Refusal("domain", "its outputs have no common iteration domain")
        return refused or (whole,)
    if whole is None or refused is not None:
        return _apart(graph, segments)
    return _together_or_apart(graph, outputs, whole, segments)


def _together_or_apart(
    graph: Graph,
    outputs: tuple[Value, ...],
    whole: Form,
    segments: Sequence[tuple[tuple[int, ...], tuple[Value, ...]]],
) -> GroupVerdict:
    """One form for all, or where that gives up items for nothing one for each segment."""
    most = max(graph.type_of(v).size for v in outputs)
    if whole.items >= most or _read_in_common(graph, segments):
        return (whole,)
    apart = _apart(graph, segments)
    few = isinstance(apart, tuple) and whole.items < max(form.items for form in apart)
    return apart if few else (whole,)


def _read_in_common(graph: Graph, segments: Iterable[tuple[tuple[int, ...], object]]) -> bool:
    """Whether two parts read one array."""
    found = [v for part, _ in segments for v in reads(graph, part) if graph.type_of(v).size > 1]
    return len(found) > len(set(found))


def _apart(
    graph: Graph, segments: Iterable[tuple[tuple[int, ...], tuple[Value, ...]]]
) -> GroupVerdict:
    """Each connected part under a form of its own."""
    forms: list[Form] = []
    for part, written in segments:
        form = single_form(graph, part, written)
        if form is None:
            return Refusal("domain", "the outputs of a part have no common iteration domain")
        problem = _refusal(graph, form)
        if problem is not None:
            return problem
        forms.append(form)
    return tuple(forms)


def components(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]
) -> list[tuple[tuple[int, ...], tuple[Value, ...]]]:
    """Weakly connected parts of a node set with the outputs each writes, by first node."""
    inside = frozenset(nodes)
    links = ((v.node, n) for n in nodes for v in graph[n].inputs if v.node in inside)
    parts = connected(nodes, links)
    first = {n: part[0] for part in parts for n in part}
    return [
        (part, written)
        for part in parts
        if (written := tuple(v for v in outputs if first[v.node] == part[0]))
    ]


def _refusal(graph: Graph, form: Form) -> Refusal | None:
    """Forms that exist but must not be built: state, scratch and lost parallelism."""
    tags = dict(form.tags)
    for n in form.nodes:
        node = graph[n]
        family = node.spec.family
        if family is Family.CONTROL:
            problem = loop_refusal(graph, form, n)
            if problem is not None:
                return problem
        if family in (Family.SORT, Family.SCATTER) and form.kind != "row":
            return Refusal("row", f"%{n} {node.op} needs lanes that walk along a row together")
        own = tags.get(Value(n))
        if family in (Family.REDUCTION, *RUNS, Family.SCATTER, Family.WINDOW) and own is None:
            return Refusal("anchor", f"%{n} {node.op} is needed at several indices at once")
        if family is Family.SCATTER and any(u in form.nodes for u in graph.users[n]):
            return Refusal("scatter", f"%{n} {node.op} is read in the kernel that writes it")
        if family in (Family.REDUCTION, *RUNS) and own is not None:
            scratch = _size(local_shape(graph, Value(n), own))
            if scratch > ROW_SCRATCH and len(form.nodes) > 1:
                return Refusal("scratch", f"%{n} {node.op} keeps {scratch} elements per item")
    if len(form.nodes) > 1:
        problem = _tile_refusal(graph, form) or _parallelism_refusal(graph, form)
        if problem is not None:
            return problem
    return _recompute_refusal(graph, form)


def _families(graph: Graph, nodes: Iterable[int]) -> set[Family]:
    return {graph[n].spec.family for n in nodes}


def _needs_no_tiles(graph: Graph, form: Form, node: int) -> bool:
    short = graph[node].spec.terms(graph.call(node)) <= SHORT_SUM or is_filter(graph, node)
    short = short or tiles_of(graph, form, diagonal=True) is not None
    return short or _is_product(graph, form.nodes, form.outputs)


def _tile_refusal(graph: Graph, form: Form) -> Refusal | None:
    """A contraction shares a kernel only in the tile schedule, with rows that scratch can hold, or
    where its sums are so short that every item has its own (a depthwise convolution)."""
    node = next((n for n in form.nodes if graph[n].spec.family is Family.CONTRACTION), None)
    if node is None:
        return None
    if Family.SCATTER in _families(graph, form.nodes):
        return Refusal("tile", f"%{node} {graph[node].op} shares no kernel with what is scattered")
    tiles = tiles_of(graph, form)
    if tiles is None:
        if _needs_no_tiles(graph, form, node):
            return None
        return Refusal("tile", f"%{node} {graph[node].op} cannot be computed tile by tile")
    scratch = 0 if tiles.columns else row_scratch(graph, form, tiles)
    if scratch > ROW_SCRATCH and online_of(graph, form, tiles) is None:
        return Refusal("scratch", f"products keep {scratch} elements per row")
    return None


def _recompute_refusal(graph: Graph, form: Form) -> Refusal | None:
    """Chains of shifted reads must not compute their values over and over."""
    if not may_repeat(graph, form.nodes):
        return None
    found = index_counts(graph, form)
    if found.repeated <= MOST_REPEATED:
        return None
    if kept_values(graph, form):
        return None  # in tiles of rows each is computed once
    value, limit = found.worst, MOST_REPEATED
    return Refusal(
        "recompute",
        f"{value} {graph[value.node].op} is needed at {found.counts[value]} indices or more per "
        f"item, and all values together would be computed more than {limit} times again",
    )


def _size(shape: tuple[int, ...]) -> int:
    total = 1
    for extent in shape:
        total *= extent
    return total


@lru_cache(maxsize=4096)
def _items_alone(graph: Graph, n: int) -> int:
    outputs = tuple(Value(n, i) for i in range(len(graph[n].types)))
    form = single_form(graph, (n,), outputs)
    return 1 if form is None else form.items


def _parallelism_refusal(graph: Graph, form: Form) -> Refusal | None:
    """Fusing must not leave fewer independent items than its own reduction roots have."""
    anchors = [n for n in form.nodes if graph[n].spec.family in REDUCTION_ROOTS]
    work = max(graph.type_of(v).size for v in (*form.outputs, *reads(graph, form.nodes)))
    if work <= SMALL_WORK:
        return None
    if not anchors:
        return None
    least = min(_items_alone(graph, n) for n in anchors)
    if any(graph[n].spec.family is Family.CONTRACTION for n in anchors):
        least = min(least, LEAST_ROWS)
    if form.items < least:
        return Refusal("parallelism", f"{form.items} independent items would be left of {least}")
    return None


def _check_kernel(graph: Graph, group: FusionGroup) -> None:
    verdict = check_group(graph, group.nodes, group.outputs)
    if isinstance(verdict, Refusal):
        raise PlanError(f"group {group} cannot be one kernel: {verdict}")


def check_plan(graph: Graph, plan: FusionPlan) -> None:
    """Raises PlanError unless `plan` computes every output of `graph` with legal kernels."""
    ready = {Value(i) for i in range(len(graph.nodes)) if is_source(graph, i)}
    for group in plan.groups:
        _check_known(graph, group)
        missing = [v for v in reads(graph, group.nodes) if v not in ready]
        if missing:
            raise PlanError(f"group {group} reads {missing[0]} before any group wrote it")
        if group.body is not None:
            _check_body(graph, group)
        else:
            _check_kernel(graph, group)
        ready.update(group.outputs)
    for value in graph.outputs:
        if value not in ready:
            raise PlanError(f"no group writes graph output {value}")


def _check_known(graph: Graph, group: FusionGroup) -> None:
    inside = set(group.nodes)
    if not inside or any(not 0 <= n < len(graph.nodes) for n in inside):
        raise PlanError(f"group {group} names nodes that the graph does not have")
    for v in group.outputs:
        if v.node not in inside or v.index >= len(graph[v.node].types):
            raise PlanError(f"group {group} writes {v}, which it does not compute")


def _check_body(graph: Graph, group: FusionGroup) -> None:
    assert group.body is not None
    check_plan(host_loop(graph, group)[0], group.body)


__all__ = ["LOCAL", "Refusal", "check_group", "check_plan", "components", "refusal_of"]
