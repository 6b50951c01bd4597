"""schedule: a candidate as steps over buffers, ready to be printed or run.

Intermediates live in one workspace and share its bytes when their lifetimes do not overlap. A
host loop alternates between two copies of its state. What depends on constants alone is computed
by steps of their own, which run once, into buffers that calls find prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.types import Literal, TensorType
from autofuse.plan.binding import NOTHING_BOUND, Binding, Division, divided
from autofuse.plan.groups import host_loop, is_inline, is_source, reads
from autofuse.plan.packing import Packing, packing_of
from autofuse.plan.steps import (
    UNREAD,
    Copy,
    Ref,
    Repeat,
    Run,
    Step,
    While,
    kernel_runs,
    launches_per_call,
    refs_of,
)
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig

__all__ = [
    "UNREAD", "Copy", "Ref", "Repeat", "Run", "Schedule", "Step", "While", "kernel_runs",
    "launches_per_call", "schedule",
]  # fmt: skip
ALIGN = 64


@dataclass(frozen=True, slots=True)
class Schedule:
    """Steps in order, the array constants they read, and the workspace size in bytes.

    `owners` says for each step which group of the plan it belongs to; -1: a copy to an output.
    The steps of `prepare` run once, when constants are bound as `binding` says."""

    steps: tuple[Step, ...]
    constants: tuple[Literal, ...]
    workspace: int
    owners: tuple[int, ...] = ()
    prepare: tuple[Step, ...] = ()
    binding: Binding = NOTHING_BOUND

    @property
    def everything(self) -> tuple[Step, ...]:
        """All steps, those that run once first."""
        return (*self.prepare, *self.steps)


class _Arena:
    """Workspace bytes handed out first-fit and taken back."""

    def __init__(self, space: str = "work") -> None:
        self.space = space
        self.live: dict[int, int] = {}
        self.peak = 0

    def take(self, nbytes: int) -> Ref:
        size = max(1, -(-nbytes // ALIGN)) * ALIGN  # empty arrays too have a place of their own
        at = 0
        for start in sorted(self.live):
            if start - at >= size:
                break
            at = start + self.live[start]
        self.live[at] = size
        self.peak = max(self.peak, at + size)
        return Ref(self.space, offset=at)

    def give(self, ref: Ref) -> None:
        del self.live[ref.offset]


class _Scheduler:
    """Steps of one entry. `constants` are numbered for the whole program; `known` says where
    values are that are there beforehand, `packed` the same of a group's panels."""

    def __init__(self, constants: dict[Literal, int]) -> None:
        self.arena = _Arena()
        self.constants = constants
        self.known: dict[Value, Ref] = {}
        self.packed: dict[FusionGroup, tuple[Ref, ...]] = {}
        self.owners: tuple[int, ...] = ()

    def constant(self, literal: Literal) -> Ref:
        return Ref("const", self.constants.setdefault(literal, len(self.constants)))

    def plan(
        self, graph: Graph, plan: FusionPlan, launches: tuple[LaunchConfig, ...],
        bodies: tuple[tuple[LaunchConfig, ...], ...], inputs: tuple[Ref, ...],
        outputs: tuple[Ref, ...], level: int,
    ) -> list[Step]:  # fmt: skip
        """Steps that compute `outputs` from `inputs`; no outputs: nothing leaves."""
        place: dict[Value, Ref] = {
            Value(n): ref for n, ref in zip(graph.inputs, inputs, strict=True)
        }
        place |= {} if level else self.known
        for n, node in enumerate(graph.nodes):
            if node.op == "constant" and not is_inline(graph, n):
                place[Value(n)] = self.constant(dict(node.attrs)["value"])
        for value, ref in zip(graph.outputs, outputs, strict=bool(outputs)):
            if not is_source(graph, value.node):
                place.setdefault(value, ref)
        last = _last_uses(graph, plan)
        steps: list[Step] = []
        owners: list[int] = []
        mine: dict[Value, Ref] = {}
        for position, group in enumerate(plan.groups):
            for value in group.outputs:
                if value not in place:
                    mine[value] = place[value] = self.arena.take(graph.type_of(value).nbytes)
            step_bodies = bodies[position] if bodies else ()
            steps += self._group(graph, group, launches[position], step_bodies, place, level)
            owners += [position] * (len(steps) - len(owners))
            for value in [v for v in mine if last.get(v, -1) <= position]:
                self.arena.give(mine.pop(value))
        for ref in mine.values():
            self.arena.give(ref)
        steps += self._passed_through(graph, outputs, place)
        self.owners = (*owners, *[-1] * (len(steps) - len(owners)))
        return steps

    def _passed_through(
        self, graph: Graph, outputs: tuple[Ref, ...], place: dict[Value, Ref]
    ) -> list[Step]:
        """Outputs that are inputs, constants or other outputs."""
        steps: list[Step] = []
        for value, ref in zip(graph.outputs, outputs, strict=bool(outputs)):
            if is_inline(graph, value.node):
                source = self.constant(dict(graph[value.node].attrs)["value"])
            else:
                source = place[value]
            if source != ref:
                steps.append(Copy(source, ref, graph.type_of(value).nbytes))
        return steps

    def _group(
        self, graph: Graph, group: FusionGroup, launch: LaunchConfig,
        bodies: tuple[LaunchConfig, ...], place: dict[Value, Ref], level: int,
    ) -> list[Step]:  # fmt: skip
        if group.body is not None:
            # Bodies are configured one level deep: in a loop inside a loop, the inner one's groups
            # take the configuration of the inner loop itself.
            inner = bodies or (launch,) * len(group.body.groups)
            counted = is_counted(graph[group.nodes[0]].op)
            issue = self._loop if counted else self._while
            return issue(graph, group, group.body, inner, place, level)
        found = reads(graph, group.nodes)
        writes = tuple(place[v] for v in group.outputs)
        packing = packing_of(graph, group, launch)
        if packing is None:
            return [Run(graph, group, launch, tuple(place[v] for v in found), writes)]
        read = tuple(place[v] if v in packing.beside else UNREAD for v in found)
        panels = self.packed.get(group)
        if panels is not None:
            return [Run(graph, group, launch, read, writes, panels)]
        fresh = tuple(self.arena.take(panel.nbytes) for panel in packing.panels)
        for ref in fresh:
            self.arena.give(ref)
        run = Run(graph, group, launch, read, writes, fresh)
        return [self.pack(run, packing, place), run]

    def pack(self, run: Run, packing: Packing, place: Mapping[Value, Ref]) -> Run:
        """What packs the panels that a run reads."""
        found = reads(run.graph, run.group.nodes)
        made_of = tuple(place[v] if v in packing.made_of else UNREAD for v in found)
        return replace(run, reads=made_of, writes=run.panels, panels=(), packs=True)

    def _loop(
        self, graph: Graph, group: FusionGroup, inner: FusionPlan,
        launches: tuple[LaunchConfig, ...], place: dict[Value, Ref], level: int,
    ) -> list[Step]:  # fmt: skip
        node = group.nodes[0]
        call, types = graph.call(node), graph[node].types
        body, trips = host_loop(graph, group)
        carries = int(call["carries"])
        operands = [self._operand(graph, v, place) for v in graph[node].inputs]
        counter = self.arena.take(4)
        state = [[self.arena.take(t.nbytes) for t in types[:carries]] for _ in range(2)]
        stacks = [self._stack(graph, Value(node, k), place) for k in range(carries, len(types))]
        slices = [
            row
            for ref, type_ in zip(stacks, types[carries:], strict=True)
            for row in _rows(ref, level, type_.nbytes // trips, group.unroll)
        ]
        turns: list[tuple[Step, ...]] = []
        for source, target in ((state[0], state[1]), (state[1], state[0])):
            inputs = (counter, *source, *operands[carries:])
            outputs = (*target, *slices)
            turns.append(tuple(self.plan(body, inner, launches, (), inputs, outputs, level + 1)))
        done: list[Step] = [Copy(operands[k], state[0][k], types[k].nbytes) for k in range(carries)]
        done.append(Repeat(trips, level, counter, turns[0], turns[1]))
        for k, ref in enumerate((*state[trips % 2], *stacks)):
            home = place.get(Value(node, k))
            if home is not None and home != ref:
                done.append(Copy(ref, home, types[k].nbytes))
        own = [ref for ref in stacks if ref not in place.values()]
        for ref in (counter, *state[0], *state[1], *own):
            self.arena.give(ref)
        return done

    def _while(
        self, graph: Graph, group: FusionGroup, inner: FusionPlan,
        launches: tuple[LaunchConfig, ...], place: dict[Value, Ref], level: int,
    ) -> list[Step]:  # fmt: skip
        node = group.nodes[0]
        call, types = graph.call(node), graph[node].types
        body, most = host_loop(graph, group)[0], int(call["max_trips"])
        operands = [self._operand(graph, v, place) for v in graph[node].inputs]
        first, invariants = operands[: len(types)], operands[len(types) :]
        homes = [place.get(Value(node, k)) for k in range(len(types))]
        counter = self.arena.take(4)
        own = [[self.arena.take(t.nbytes) for t in types] for _ in range(min(most, 2))]
        # A branch leaves its results where they are read, and needs no copy of what it replaces.
        state = own if most > 1 else [first, [h or r for h, r in zip(homes, own[0], strict=True)]]
        turns: list[tuple[Step, ...]] = []
        for source, target in ((state[0], state[1]), (state[1], state[0]))[:most]:
            inputs = (counter, *source, *invariants)
            made = self.plan(body, inner, launches, (), inputs, tuple(target), level + 1)
            turns.append(tuple(made))
        ends = [_copies_home(refs, homes, types) for refs in state]
        done: list[Step] = []
        if most > 1:
            done += [Copy(a, b, t.nbytes) for a, b, t in zip(first, state[0], types, strict=True)]
        odd = turns[1] if most > 1 else ()
        go, flags = (state[0][0], state[1][0]), types[0].size
        done.append(While(most, level, counter, turns[0], odd, go, flags, (ends[0], ends[1])))
        for ref in (counter, *(r for refs in own for r in refs)):
            self.arena.give(ref)
        return done

    def _operand(self, graph: Graph, value: Value, place: dict[Value, Ref]) -> Ref:
        if is_inline(graph, value.node):
            return self.constant(dict(graph[value.node].attrs)["value"])
        return place[value]

    def _stack(self, graph: Graph, value: Value, place: dict[Value, Ref]) -> Ref:
        """Where iterations leave their slices of a stacked result, one after another."""
        base = place.get(value)
        # Nobody reads it, but the body writes it; or it moves with the iterations of an outer loop.
        if base is None or base.stride:
            return self.arena.take(graph.type_of(value).nbytes)
        return base


def _copies_home(
    refs: Sequence[Ref], homes: Sequence[Ref | None], types: Sequence[TensorType]
) -> tuple[Copy, ...]:
    """States to where they are read, unless they are there, or nobody reads them."""
    triples = zip(refs, homes, types, strict=True)
    return tuple(Copy(r, h, t.nbytes) for r, h, t in triples if h is not None and h != r)


def _rows(base: Ref, level: int, stride: int, count: int) -> list[Ref]:
    """Where one iteration leaves its `count` rows of a stacked result that grows by `stride`
    bytes."""
    return [
        replace(base, offset=base.offset + k * (stride // count), level=level, stride=stride)
        for k in range(count)
    ]


def _last_uses(graph: Graph, plan: FusionPlan) -> dict[Value, int]:
    """For each value the position of the last group that reads or writes it.

    A value may be written twice, the second time after its last reader."""
    last: dict[Value, int] = {}
    for position, group in enumerate(plan.groups):
        for value in (*reads(graph, group.nodes), *group.outputs):
            last[value] = position
    return last


def schedule(graph: Graph, candidate: Candidate) -> Schedule:
    """The steps of a candidate; the plan must be legal for the graph (`check_plan`)."""
    division = divided(graph, candidate)
    constants: dict[Literal, int] = {}
    once, call, held = _Scheduler(constants), _Scheduler(constants), _Arena("held")
    call.known = {v: held.take(graph.type_of(v).nbytes) for v in division.held}
    prepare = _prepare(graph, candidate, division, once, held, call)
    rest = [k for k in range(len(candidate.plan.groups)) if k not in division.once]
    inputs = tuple(Ref("in", k) for k in range(len(graph.inputs)))
    outputs = tuple(Ref("out", k) for k in range(len(graph.outputs)))
    steps = tuple(call.plan(graph, *_part(candidate, rest), inputs, outputs, 0))
    owners = tuple(rest[owner] if owner >= 0 else -1 for owner in call.owners)
    bound = constant_inputs(graph)
    taken = {ref.index for ref in refs_of(steps) if ref.space == "in"}
    binding = Binding(
        bound, tuple(k for k in bound if k in taken), held.peak, once.arena.peak
    )  # fmt: skip
    return Schedule(steps, tuple(constants), call.arena.peak, owners, prepare, binding)


def _part(
    candidate: Candidate, positions: Sequence[int]
) -> tuple[FusionPlan, tuple[LaunchConfig, ...], tuple[tuple[LaunchConfig, ...], ...]]:
    """Some groups of a candidate and their configurations."""
    groups = tuple(candidate.plan.groups[k] for k in positions)
    launches = tuple(candidate.launches[k] for k in positions)
    bodies = tuple(candidate.bodies[k] for k in positions) if candidate.bodies else ()
    return FusionPlan(groups), launches, bodies


def _prepare(
    graph: Graph, candidate: Candidate, division: Division, once: _Scheduler, held: _Arena,
    call: _Scheduler,
) -> tuple[Step, ...]:  # fmt: skip
    """The steps that run once: groups, then whatever packs. Tells `call` where panels are."""
    first = sorted(division.once)
    made = dict.fromkeys(v for k in first for v in candidate.plan.groups[k].outputs)
    # All of it lives until the end: what packs comes last.
    once.known = {v: call.known.get(v) or once.arena.take(graph.type_of(v).nbytes) for v in made}
    inputs = tuple(Ref("in", k) for k in range(len(graph.inputs)))
    steps = once.plan(graph, *_part(candidate, first), inputs, (), 0) if first else []
    place = {Value(n): ref for n, ref in zip(graph.inputs, inputs, strict=True)} | once.known
    for k in sorted(division.packed_once - division.once):
        group, packing = candidate.plan.groups[k], division.packings[k]
        assert packing is not None
        panels = tuple(held.take(panel.nbytes) for panel in packing.panels)
        call.packed[group] = panels
        literals = [v for v in packing.made_of if v not in place]
        place |= {v: once.constant(dict(graph[v.node].attrs)["value"]) for v in literals}
        run = Run(graph, group, candidate.launches[k], (), (), panels)
        steps.append(once.pack(run, packing, place))
    return tuple(steps)
