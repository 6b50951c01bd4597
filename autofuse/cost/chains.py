"""The time that loops take at least because each iteration waits for the one before.

An iteration is a step of a system of minima, maxima and sums (`cost/ready.py`): it takes the times
at which states are ready to those at which the next ones are. Such a step keeps order, and is as
much later as what it begins with (Baccelli, Cohen, Olsder and Quadrat, Synchronization and
Linearity, 1992), so that iterations after a few are known without being looked at: where some
elements are later by one figure after a period, they are so after each, whatever the others do.
That figure over the period is the greatest mean of a cycle where there are maxima alone.

The bound holds for every kernel: items, lanes and cores make no chain shorter, nor does unrolling.
Iterations in which states are still made of literals alone count nothing, because compilers work
these out. Of a `while` no iteration is sure. What is not seen: loads at places that a state tells,
what a stack of one loop lets another wait for, operations on whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

from autofuse.cost.latency import NOTHING, Latencies, delays_of
from autofuse.cost.ready import EACH, KNOWN, DelayTable, ReadyAt, ReadyTimes, node_ready
from autofuse.graph.settled import settled
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family
from autofuse.ops.types import TensorType
from autofuse.plan.fusion.groups import is_inline

# Iterations after which times are compared, by how many loops are around.
PERIODS = (12, 4, 2)
# Figures of growth that are tried, the greatest first.
TRIES = 3
# By what fraction figures may differ that are the same but for rounding.
ROUNDING = 1e-9
# Nanoseconds an iteration to which it is told apart, rounded down, when what a loop takes is ready:
# what begins it a little later is not worth going through it again.
BEGUN_NS = 0.02
NO_DELAYS: DelayTable = {}
GIVEN = ReadyAt(np.array(0.0))
# When each state is ready, and when a sum that takes it in: of shape [2, ...].
StateTimes = list[ReadyTimes]
# When what the last iteration of a loop leaves is ready.
End = tuple[ReadyAt, ...]


def chain_us(
    graph: Graph, nodes: Collection[int], outputs: Collection[Value], latency: Latencies
) -> float:
    """Microseconds that a kernel of these nodes waits at least for its loops; 0 without loops, and
    where no latencies are known."""
    if not latency or not any(graph[n].spec.family is Family.CONTROL for n in nodes):
        return 0.0
    return _chain_ns(graph, tuple(sorted(nodes)), tuple(outputs), latency) / 1e3


@lru_cache(maxsize=4096)
def _chain_ns(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...], latency: Latencies
) -> float:
    inside, known = frozenset(nodes), settled(graph)
    found: dict[Value, ReadyAt] = {}
    for v in {v for n in nodes for v in graph[n].inputs if v.node not in inside}:
        found[v] = KNOWN if v.node in known or is_inline(graph, v.node) else GIVEN
    waiting = [n for n in nodes if n not in known]
    run = _Run(graph, frozenset(outputs), delays_of(latency), latency)
    return max(0.0, run.through(waiting, found))


class _Run:
    """What evaluates the nodes of one graph. `wanted`: values that somebody else reads, or writes;
    `depth`: loops around."""

    def __init__(
        self, graph: Graph, wanted: Collection[Value], table: DelayTable, latency: Latencies,
        depth: int = 0,
    ) -> None:  # fmt: skip
        self.graph, self.wanted, self.table = graph, wanted, table
        self.latency, self.depth = latency, depth

    def through(self, nodes: Sequence[int], found: dict[Value, ReadyAt]) -> float:
        """Adds to `found` when the results of these nodes are ready; when the last iteration of the
        last loop is over, -inf without one."""
        latest = -math.inf
        for n in nodes:
            node = self.graph[n]
            operands = [found.get(v, KNOWN) for v in node.inputs]
            if all(map(_is_known, operands)) and node.spec.family is not Family.CONTROL:
                continue
            if node.spec.family is not Family.CONTROL:
                found[Value(n)] = node_ready(self.graph, n, operands, self.table)
            elif is_counted(node.op):
                read = _all_read(self.graph, tuple(nodes))
                outs = (Value(n, k) for k in range(len(node.types)))
                used = tuple(v.index for v in outs if v in read or v in self.wanted)
                results, over = self._loop(n, operands, used)
                found |= {Value(n, k): one for k, one in enumerate(results)}
                latest = max(latest, over)
        return latest

    def _loop(
        self, node: int, operands: Sequence[ReadyAt], used: tuple[int, ...]
    ) -> tuple[Sequence[ReadyAt], float]:
        since = min((_first(one.at) for one in operands), default=math.inf)
        since = since if since < math.inf else 0.0
        keys = _keys(self.graph, node, operands, since, self.depth)
        latency = self.latency if self.table else ()
        ends = _known_loop(self.graph, node, keys, latency, self.depth)
        end, over = max(((e, _latest(e, used)) for e in ends), key=lambda found: found[1])
        results = _results(end, int(self.graph.call(node)["carries"]))
        return [one.later(since) for one in results], over + since


@lru_cache(maxsize=64)
def _all_read(graph: Graph, nodes: tuple[int, ...]) -> frozenset[Value]:
    """What some nodes read."""
    return frozenset(v for n in nodes for v in graph[n].inputs)


def _is_known(one: ReadyAt) -> bool:
    return one is KNOWN


def _first(times: ReadyTimes) -> float:
    """When the first of what is not known is ready."""
    return float(np.min(times, initial=math.inf, where=np.isfinite(times)))


_Key = tuple[tuple[int, ...], bytes] | None


def _keys(
    graph: Graph, node: int, operands: Sequence[ReadyAt], since: float, depth: int
) -> tuple[tuple[_Key, _Key], ...]:
    """When what a loop takes is ready after `since`, or sooner. Many kernels have the same loop: of
    theirs it is as if all were given at once, unless most of its states are late."""
    call = graph.call(node)
    carries, grid = int(call["carries"]), BEGUN_NS * max(1, int(call["trip"]))
    late = sum(float(one.at.max()) >= since + grid for one in operands[:carries])
    if not depth and 2 * late < carries:
        grid = math.inf
    return tuple((_key(one.at, since, grid), _key(one.summed, since, grid)) for one in operands)


def _key(times: ReadyTimes | None, since: float, grid: float) -> _Key:
    if times is None:
        return None
    times = times - since
    whole = np.floor(times / grid) * grid if grid < math.inf else np.minimum(times, 0.0)
    if whole.size and (whole == whole.flat[0]).all():  # one time for all
        whole = whole.reshape(-1)[:1].reshape(())
    return np.shape(whole), np.asarray(whole, dtype=float).tobytes()


def _times(key: _Key) -> ReadyTimes | None:
    return None if key is None else np.frombuffer(key[1]).reshape(key[0])


@lru_cache(maxsize=1024)
def _known_loop(
    graph: Graph, node: int, keys: tuple[tuple[_Key, _Key], ...], latency: Latencies, depth: int
) -> list[End]:
    """See `_Loop.ends`; loops are gone through once for all that begin them alike."""
    operands = [
        ReadyAt(at, _times(summed)) if np.isfinite(at).any() else KNOWN
        for one, summed in keys if (at := _times(one)) is not None
    ]  # fmt: skip
    table = delays_of(latency) if latency else NO_DELAYS
    return _Loop(graph, node, table, latency, depth).ends(operands)


def _results(end: End, carries: int) -> End:
    """Of a stack it is known that it is no sooner there than what is given."""
    stacks = (GIVEN if np.isfinite(one.at).all() else KNOWN for one in end[carries:])
    return (*end[:carries], *stacks)


def _latest(end: End, used: Sequence[int]) -> float:
    """When the last iteration is over, of those of its results that are `used`."""
    return max((float(end[k].at.max()) for k in used), default=-math.inf)


class _Loop:
    """A counted loop: its iterations as steps of times."""

    def __init__(
        self, graph: Graph, node: int, table: DelayTable, latency: Latencies, depth: int
    ) -> None:
        call = graph.call(node)
        self.body: Graph = call["body"]
        self.trip, self.carries = int(call["trip"]), int(call["carries"])
        self.table = table
        self.period = PERIODS[min(depth, len(PERIODS) - 1)]
        self.nodes = [n for n in range(len(self.body.nodes)) if n not in set(self.body.inputs)]
        self.kinds = [self.body.type_of(v) for v in self.body.outputs[: self.carries]]
        self.latency, self.depth = latency, depth

    def ends(self, operands: Sequence[ReadyAt]) -> list[End]:
        """When the loop's results are ready: each says what it says, and the latest holds."""
        others = operands[self.carries :]
        states, rest, is_steady = self._settle(self._states(operands[: self.carries]), others)
        if not is_steady:
            return [self._last(states, others, NO_DELAYS)]
        before, ahead = states, rest - 1
        if ahead > 3 * self.period:
            ahead = ahead % self.period + self.period
        for k in range(ahead):
            if k == ahead - self.period:
                before = states
            states = self._next(states, others)
        jumps = (rest - 1 - ahead) // self.period
        if not jumps:
            return [self._last(states, others, self.table)]
        ends = [self._last(s, others, self.table) for s in self._jumped(before, states, jumps)]
        return ends or [self._last(states, others, NO_DELAYS)]

    def _states(self, found: Sequence[ReadyAt]) -> StateTimes:
        return [_state(one, kind, self.table) for one, kind in zip(found, self.kinds, strict=False)]

    def _settle(
        self, states: StateTimes, others: Sequence[ReadyAt]
    ) -> tuple[StateTimes, int, bool]:
        """The states once no more of them become others than literals, iterations that are left,
        and whether it came so far."""
        for done in range(min(self.trip - 1, 2 * self.period) + 1):
            found = self._next(states, others, NO_DELAYS)
            if all(map(_alike, found, states)):
                return states, self.trip - done, True
            states = found
        return states, 1, False

    def _outputs(
        self, states: StateTimes, others: Sequence[ReadyAt], table: DelayTable
    ) -> list[ReadyAt]:
        inner = _Run(self.body, self.body.outputs, table, self.latency, self.depth + 1)
        given = [KNOWN, *(ReadyAt(s[0], s[1]) if np.isfinite(s).any() else KNOWN for s in states)]
        pairs = zip(self.body.inputs, (*given, *others), strict=True)
        found = {Value(n): one for n, one in pairs}
        inner.through(self.nodes, found)
        return [found.get(v, KNOWN) for v in self.body.outputs]

    def _next(
        self, states: StateTimes, others: Sequence[ReadyAt], table: DelayTable | None = None
    ) -> StateTimes:
        return self._states(self._outputs(states, others, self.table if table is None else table))

    def _last(self, states: StateTimes, others: Sequence[ReadyAt], table: DelayTable) -> End:
        return tuple(self._outputs(states, others, table))

    def _jumped(self, before: StateTimes, states: StateTimes, jumps: int) -> list[StateTimes]:
        """The states that many periods later, for each figure of growth that holds; what does not
        grow so is taken to be known."""
        with np.errstate(invalid="ignore"):
            growth = [
                np.nan_to_num(b - a, nan=-math.inf) for a, b in zip(before, states, strict=True)
            ]
        found = []
        figure = max((float(g.max()) for g in growth), default=0.0)
        for _ in range(TRIES):
            if not 0 < figure < math.inf:
                break
            least = figure * (1 - ROUNDING)
            chosen = [g >= least for g in growth]
            begun = [np.where(c, s, -math.inf) for c, s in zip(chosen, states, strict=True)]
            sure = self._sure(begun, chosen)
            if sure > 0:
                found.append([s + jumps * sure for s in begun])
            below = [float(g[g < least].max(initial=0.0)) for g in growth]
            figure = max(below, default=0.0)
        return found

    def _sure(self, begun: StateTimes, chosen: Sequence[np.ndarray]) -> float:
        """By how much all of the chosen elements are later after a period, from these alone."""
        known = [KNOWN] * (len(self.body.inputs) - 1 - self.carries)
        ended = begun
        for _ in range(self.period):
            ended = self._next(ended, known)
        later = (e[c] - b[c] for b, e, c in zip(begun, ended, chosen, strict=True) if c.any())
        return min((float(one.min()) for one in later), default=0.0) * (1 - ROUNDING)


def _state(one: ReadyAt, kind: TensorType, table: DelayTable) -> ReadyTimes:
    """Times of a state of that type: of each element where there are few."""
    joined = one.joined(table.get(kind.dtype, NOTHING))
    if kind.size > EACH:
        return np.stack([one.at.min(), joined.min()])
    return np.stack([np.broadcast_to(times, kind.shape) for times in (one.at, joined)])


def _alike(one: ReadyTimes, other: ReadyTimes) -> bool:
    return bool((np.isfinite(one) == np.isfinite(other)).all())
