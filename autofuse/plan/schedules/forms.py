"""The form of a kernel: which axes its independent iterations run over.

One rule serves every kernel. Choose *parallel* axes so that everything that must be computed once
(a reduction, a scan, a window, a contraction, a loop's carried state: a *reduction root*) is needed
only at the very item that computes it. The analysis starts from all axes of the main output, asks
which index every value is needed at, and gives up the parallel axes that some reduction root mixes,
until none does. What is left of each value per item is its *local* part: registers
(thread-per-element: items are lanes) or a row that lanes walk along (block-per-row)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

from autofuse.graph.types import Graph, Value
from autofuse.ops import index as ix
from autofuse.ops.control import is_counted
from autofuse.ops.pull import Index
from autofuse.ops.spec import Family
from autofuse.plan.schedules.axis_facts import NodeFacts, facts_of, kept_facts, whole_axes

# Per axis: the parallel axis (an int) it equals, or the set of parallel axes that its index
# depends on in another way (empty: a local axis).
Tag = int | frozenset[int]
Tags = tuple[Tag, ...]
LOCAL: frozenset[int] = frozenset()
REDUCTION_ROOTS = (
    Family.REDUCTION, Family.SCAN, Family.SORT, Family.SCATTER, Family.WINDOW, Family.CONTRACTION,
    Family.SOLVER, Family.CONTROL,
)  # fmt: skip
# Local elements per item that are unrolled into registers rather than walked by lanes.
REGISTERS = 16
STATE_LIMIT = 64
# Elements of row scratch one kernel may hold per row (256 KiB of f32: an L2 share).
ROW_SCRATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class Form:
    """How one kernel segment runs: `kind` "item" or "row", extents of its parallel axes, and for
    each value needed at one index only the tags of its axes; `carries` the tags of loop states.
    `nodes` and `outputs` are the segment's share of the group."""

    kind: str
    parallel: tuple[int, ...]
    nodes: tuple[int, ...]
    outputs: tuple[Value, ...]
    tags: tuple[tuple[Value, Tags], ...]
    carries: tuple[tuple[tuple[int, int], Tags], ...] = ()

    @property
    def items(self) -> int:
        return math.prod(self.parallel)


class Demand:
    """At which indices the values of a node set are needed, for given parallel axes; some are
    wanted from the start."""

    def __init__(
        self, graph: Graph, nodes: Iterable[int], parallel: frozenset[int],
        wanted: Iterable[tuple[Value, Tags]] = (),
    ) -> None:  # fmt: skip
        self.graph = graph
        self.nodes = frozenset(nodes)
        self.parallel = parallel
        self.wanted: dict[Value, set[Tags]] = {}
        self.mixed: set[int] = set()
        self.carries: dict[tuple[int, int], Tags] = {}
        for value, tags in wanted:
            self.want(value, tags)

    def want(self, value: Value, tags: Tags) -> None:
        self.wanted.setdefault(value, set()).add(tuple(map(self._kept, tags)))

    def _kept(self, tag: Tag) -> Tag:
        if isinstance(tag, int):
            return tag if tag in self.parallel else LOCAL
        return tag & self.parallel

    def run(self) -> Demand:
        """Propagate from outputs to inputs, noting parallel axes that reduction roots mix."""
        known = kept_facts(self.graph)
        for node in sorted(self.nodes, reverse=True):
            facts = known[node] or facts_of(self.graph, known, node)
            family = facts.family
            if family is Family.CONTROL:
                self._run_loop(node, list(facts.outs))
                continue
            for value in facts.outs:
                wanted = self.wanted.get(value)
                if not wanted:
                    continue
                for tags in wanted if len(wanted) == 1 else sorted(wanted, key=repr):
                    self._operands(facts, tags)
                    for axis in whole_axes(family, self.graph.call(node)):
                        self.mixed |= parts(tags[axis])
                if family in REDUCTION_ROOTS:
                    self.give_up(wanted)
        return self

    def give_up(self, wanted: set[Tags]) -> None:
        """Give up every parallel axis that one of these demands lacks or transforms."""
        for tags in wanted:
            self.mixed |= self.parallel - {t for t in tags if isinstance(t, int)}
            self.mixed |= {p for t in tags if isinstance(t, frozenset) for p in t}

    def _operands(self, facts: NodeFacts, tags: Tags) -> None:
        """Tags of outputs are kept ones already, and so are those that follow from them."""
        for operand in facts.operands:
            found = tags
            if not operand.same:
                loose: frozenset[int] = LOCAL
                for out_axis in operand.loose:
                    loose |= parts(tags[out_axis])
                found = tuple(tags[o] if o >= 0 else loose for o in operand.source)
            wanted = self.wanted.get(operand.value)
            if wanted is None:
                self.wanted[operand.value] = {found}
            else:
                wanted.add(found)

    def _run_loop(self, node: int, outs: list[Value]) -> None:
        """Carried states are needed, iteration after iteration, at the index of the final state."""
        n, call = self.graph[node], self.graph.call(node)
        body: Graph = call["body"]
        carries: int = call["carries"]
        state: dict[int, set[Tags]] = {k: set(self.wanted.get(outs[k], ())) for k in range(carries)}
        stacks = {
            k: {t[1:] for t in self.wanted.get(outs[k], ())} for k in range(carries, len(outs))
        }
        for k in stacks:  # iterations follow one another
            self.mixed |= {p for t in self.wanted.get(outs[k], ()) for p in parts(t[0])}
        while True:
            if not is_counted(n.op):  # a state goes on where its flag is set
                state[0] |= {t[: n.types[0].rank] for found in state.values() for t in found}
            ends = {**state, **stacks}.items()
            demanded = frozenset((k, tags) for k, wanted in ends for tags in wanted)
            mixed, needs = _in_body(body, self.parallel, demanded)
            self.mixed |= mixed
            grown = {k: state[k] | needs[1 + k] for k in range(carries)}
            if grown == state:
                break
            state = grown
        for k in range(carries):
            rank = self.graph.type_of(n.inputs[k]).rank
            self.carries[node, k] = min(state[k], key=repr, default=(LOCAL,) * rank)
            self._carry(state[k], n.inputs[k])
        for k in range(carries, len(call.ins)):
            for tags in needs[1 + k]:
                self.want(n.inputs[k], tags)

    def _carry(self, demanded: set[Tags], source: Value) -> None:
        if not all(t == LOCAL for tags in demanded for t in tags):
            self.give_up(demanded)
        for places in map(set, zip(*demanded, strict=True)):  # an item has states of its own
            self.mixed |= {p for t in places for p in parts(t) if len(places) > 1}
        for tags in demanded:
            self.want(source, tags)


@lru_cache(maxsize=1024)
def _in_body(
    body: Graph, parallel: frozenset[int], demanded: frozenset[tuple[int, Tags]]
) -> tuple[frozenset[int], tuple[frozenset[Tags], ...]]:
    """What one iteration mixes, and how each input of the body is needed, where its outputs (by
    number) are needed at these indices. Every group around a loop asks for the same few."""
    wanted = ((body.outputs[k], tags) for k, tags in demanded)
    inner = Demand(body, range(len(body.nodes)), parallel, wanted).run()
    needs = (frozenset(inner.wanted.get(Value(i), ())) for i in body.inputs)
    return frozenset(inner.mixed), tuple(needs)


def carries_inside(
    graph: Graph, node: int, carries: Mapping[tuple[int, int], Tags], tags: Mapping[Value, Tags],
    parallel: int,
) -> dict[tuple[int, int], Tags]:  # fmt: skip
    """Tags of the states of loops in the body of loop `node`, given those of its own states
    (`carries`) and of stacks that are stored (`tags`), on so many parallel axes."""
    body: Graph = graph.call(node)["body"]
    if not any(each.spec.family is Family.CONTROL for each in body.nodes):
        return {}
    inner = Demand(body, range(len(body.nodes)), frozenset(range(parallel)))
    for k, value in enumerate(body.outputs):
        if (node, k) in carries:
            inner.want(value, carries[node, k])
        elif Value(node, k) in tags:
            inner.want(value, tags[Value(node, k)][1:])
    inner.run()
    return inner.carries


def parts(tag: Tag) -> frozenset[int]:
    """The parallel axes an index depends on."""
    return frozenset((tag,)) if isinstance(tag, int) else tag


def _main_output(graph: Graph, outputs: tuple[Value, ...]) -> Value:
    """The output that offers most parallel axes; loops offer those of their states."""
    return max(outputs, key=lambda v: (graph.type_of(v).rank, graph.type_of(v).size, v))


def align(shape: tuple[int, ...], main: tuple[int, ...]) -> Tags | None:
    """Axes of `shape` matched in order with axes of `main` of equal extent, or None."""
    if shape == main:
        return tuple(range(len(main)))
    tags: list[Tag] = []
    at = 0
    for extent in shape:
        while at < len(main) and main[at] != extent:
            at += 1
        if at == len(main):
            return None
        tags.append(at)
        at += 1
    return tuple(tags)


def _matched(graph: Graph, value: Value, main: tuple[int, ...]) -> Tags | None:
    """The axes of an output as axes of the main one by their extents, or None. Iterations follow
    one another, so that what a loop leaves shares no axes if need be: one item does it all."""
    shape = graph.type_of(value).shape
    found = align(shape, main)
    if found is not None or graph[value.node].spec.family is not Family.CONTROL:
        return found
    rows = align(shape[1:], main) if is_stack(graph, value) else None
    return (LOCAL,) * len(shape) if rows is None else (LOCAL, *rows)


def is_stack(graph: Graph, value: Value) -> bool:
    """Whether a value is the rows that a loop leaves, one of each iteration."""
    node = graph[value.node]
    return node.spec.family is Family.CONTROL and value.index >= graph.call(value.node)["carries"]


def _one_place(demanded: Collection[Tags]) -> Tags | None:
    """Where a value is read, if that is one place on axes of the main output."""
    own = next(iter(demanded)) if len(demanded) == 1 else None
    return own if own is not None and all(isinstance(t, int) for t in own) else None


def _fits_nowhere(graph: Graph, value: Value, inside: set[int], shape: tuple[int, ...]) -> bool:
    """What nothing here reads can only be matched by its shape."""
    free = inside.isdisjoint(graph.users[value.node])
    return free and _matched(graph, value, shape) is None


def _seeds(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]
) -> dict[Value, Tags] | None:
    """The index at which each output is computed, in terms of the main output's axes."""
    main = _main_output(graph, outputs)
    shape = graph.type_of(main).shape
    if outputs == (main,):
        return {main: tuple(range(len(shape)))}
    every, inside = frozenset(range(len(shape))), set(nodes)
    if any(_fits_nowhere(graph, value, inside, shape) for value in outputs if value != main):
        return None
    probe = Demand(graph, nodes, every, [(main, tuple(range(len(shape))))]).run()
    seeds: dict[Value, Tags] = {}
    for value in outputs:
        own = _one_place(probe.wanted.get(value, set()))
        if value != main and own is not None:
            seeds[value] = own
            continue
        matched = _matched(graph, value, shape)
        if matched is None:
            return None
        seeds[value] = matched
    return seeds


def single_form(graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> Form | None:
    """The one form that computes all outputs together, or None when they share no domain."""
    seeds = _seeds(graph, nodes, outputs)
    if seeds is None:
        return None
    shape = graph.type_of(_main_output(graph, outputs)).shape
    parallel = frozenset(range(len(shape)))
    for tags in seeds.values():
        parallel &= {t for t in tags if isinstance(t, int)}
    parallel -= _unrolled_axes(graph, nodes, outputs, seeds, shape)
    while True:
        demand = Demand(graph, nodes, parallel, seeds.items()).run()
        if not demand.mixed:
            break
        parallel -= demand.mixed
    return _finish(graph, nodes, outputs, demand, shape)


def _unrolled_axes(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...],
    seeds: Mapping[Value, Tags], shape: tuple[int, ...],
) -> set[int]:  # fmt: skip
    """Small axes that data movement cuts or joins: unrolled, their indices are constants."""
    if math.prod(shape) < 1024 or all(extent > REGISTERS for extent in shape):
        return set()
    loose = {n: axes for n in nodes if graph[n].spec.unrolls and (axes := _loose_axes(graph, n))}
    # An item of a product that did several would leave too few of them.
    if not loose or any(graph[n].spec.family is Family.CONTRACTION for n in nodes):
        return set()
    # Where a value is needed follows from the nodes behind it alone.
    first = min(loose)
    behind = [n for n in nodes if n > first]
    demand = Demand(graph, behind, frozenset(range(len(shape))), seeds.items()).run()
    cut = {
        p for n, axes in loose.items() for tags in demand.wanted.get(Value(n), ())
        for axis in axes for p in parts(tags[axis])
    }  # fmt: skip
    small = {p for p in cut if shape[p] <= REGISTERS}
    return small if math.prod(shape[p] for p in small) <= REGISTERS else set()


def _loose_axes(graph: Graph, node: int) -> frozenset[int]:
    """Axes of a result that are no axes of an operand."""
    mapped = graph[node].spec.axes
    maps = mapped(graph.call(node)) if mapped else ()
    return frozenset(out for each in maps for out, axis in enumerate(each) if axis is None)


def _finish(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...],
    demand: Demand, shape: tuple[int, ...],
) -> Form:  # fmt: skip
    order = sorted(demand.parallel)
    rank = {p: k for k, p in enumerate(order)}

    def renumber(tag: Tag) -> Tag:
        return rank[tag] if isinstance(tag, int) else frozenset(rank[p] for p in tag)

    def renumbered(own: Tags) -> Tags:
        return tuple(renumber(t) for t in own)

    tags: dict[Value, Tags] = {}
    for value, demanded in demand.wanted.items():
        if len(demanded) == 1:
            tags[value] = renumbered(next(iter(demanded)))
    for value in outputs:  # an output also read elsewhere is stored at its own index
        if value not in tags:
            own = next(t for t in sorted(demand.wanted[value], key=repr) if _covers(t, demand))
            tags[value] = renumbered(own)
    kind = _kind(graph, nodes, outputs, tags)
    carries = {at: renumbered(own) for at, own in demand.carries.items()}
    return Form(
        kind,
        tuple(shape[p] for p in order),
        nodes,
        outputs,
        tuple(sorted(tags.items(), key=lambda kv: kv[0])),
        tuple(sorted(carries.items(), key=lambda kv: kv[0])),
    )


def _covers(tags: Tags, demand: Demand) -> bool:
    return demand.parallel == {t for t in tags if isinstance(t, int)}


def local_shape(graph: Graph, value: Value, tags: Tags) -> tuple[int, ...]:
    """Extents of the axes that are not parallel."""
    shape = graph.type_of(value).shape
    return tuple(e for e, t in zip(shape, tags, strict=True) if not isinstance(t, int))


def join(tags: Tags, items: Index, local: Index) -> Index:
    """Parallel and local positions as one index."""
    rest = iter(local)
    return tuple(items[t] if isinstance(t, int) else next(rest) for t in tags)


def unrolled(extents: tuple[int, ...]) -> Iterator[Index]:
    """Every constant index below `extents`, row-major."""
    return product(*(tuple(map(ix.lit, range(extent))) for extent in extents))


def _kind(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...], tags: Mapping[Value, Tags]
) -> str:
    """Row form when what is local per item is long and contiguous, else thread-per-element
    schedule."""
    families = {graph[n].spec.family for n in nodes}
    if Family.CONTROL in families:
        return "item"
    if families & {Family.SORT, Family.SCATTER}:
        return "row"
    folded = [
        graph[n].inputs[0] for n in nodes if graph[n].spec.family in (Family.REDUCTION, Family.SCAN)
    ]
    scans = Family.SCAN in families
    long = any(_is_long(graph, value, tags.get(value), scans) for value in (*folded, *outputs))
    return "row" if long else "item"


def _is_long(graph: Graph, value: Value, own: Tags | None, scans: bool) -> bool:
    """Whether what an item has of a value fits no registers, and is contiguous or scanned."""
    if not own or math.prod(local_shape(graph, value, own)) <= REGISTERS:
        return False
    return scans or not isinstance(own[-1], int)
