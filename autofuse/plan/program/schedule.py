"""schedule: a candidate as steps over buffers, ready to be printed or run.

Intermediates live in one workspace and share its bytes when their lifetimes do not overlap. A
result that only changes a part of an array lies where the array did, if nobody needs that any more;
else the array is copied first. The states of a host loop take turns in their buffers
(`autofuse.plan.program.rotation`); it begins and ends where its operands and results are. What
depends on constants alone is computed by steps of their own, which run once, into buffers that
calls find prepared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.types import Literal, TensorType
from autofuse.plan.fusion.groups import host_loop, is_inline, is_source, most_trips, reads
from autofuse.plan.fusion.overwriting import updated_operand
from autofuse.plan.parameters import RESIDENT
from autofuse.plan.program.arena import Arena
from autofuse.plan.program.binding import Division, divided
from autofuse.plan.program.bound import NOTHING_BOUND, Binding
from autofuse.plan.program.packing import Packing, packing_of
from autofuse.plan.program.rotation import Ring, known_slots, turns_of
from autofuse.plan.program.sharing import homes, last_uses, loop_rings, sharing
from autofuse.plan.program.splitting import splitting_of
from autofuse.plan.program.steps import (
    UNREAD,
    Copy,
    Ref,
    Repeat,
    Run,
    Step,
    While,
    in_one,
    kernel_runs,
    launches_per_call,
    refs_of,
)
from autofuse.plan.types import (
    Candidate,
    FusionGroup,
    FusionPlan,
    LaunchConfig,
)

__all__ = [
    "UNREAD", "Copy", "Ref", "Repeat", "Run", "Schedule", "Step", "While", "kernel_runs",
    "launches_per_call", "schedule",
]  # fmt: skip


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


@dataclass(frozen=True, slots=True)
class _Ends:
    """Where a graph's inputs lie, and where its outputs are left; no outputs: nothing leaves."""

    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class _Scope:
    """A graph whose groups are being placed, so many loops deep; `place` grows with each."""

    graph: Graph
    level: int
    place: dict[Value, Ref]


class _Scheduler:
    """Steps of one entry. `constants` are numbered for the whole program; `known` says where
    values are that are there beforehand, `packed` the same of a group's panels."""

    def __init__(self, constants: dict[Literal, int]) -> None:
        self.arena = Arena()
        self.constants = constants
        self.known: dict[Value, Ref] = {}
        self.packed: dict[FusionGroup, tuple[Ref, ...]] = {}
        self.owners: tuple[int, ...] = ()

    def constant(self, literal: Literal) -> Ref:
        return Ref("const", self.constants.setdefault(literal, len(self.constants)))

    def plan(
        self, graph: Graph, plan: FusionPlan, launches: tuple[LaunchConfig, ...], ends: _Ends,
        level: int = 0, trip: int = 0,
    ) -> list[Step]:  # fmt: skip
        """Steps from one end to the other. `trip`: they are done so many times."""
        place = self._begun(graph, ends) | ({} if level else self.known)
        scope, shared = _Scope(graph, level, place), sharing(graph, plan, trip)
        lies_at = homes(shared.operand_of, place)
        last = last_uses(graph, [shared.groups[p] for p in shared.order])
        steps: list[Step] = []
        owners: list[int] = []
        mine: dict[Value, Ref] = {}
        for now, position in enumerate(shared.order):
            group = shared.groups[position]
            for value in group.outputs:
                operand = lies_at.get(value)
                if operand is not None:
                    place[value] = place[operand]
                    mine |= {value: mine.pop(operand)} if operand in mine else {}
                elif value not in place:
                    mine[value] = place[value] = self.arena.take(graph.type_of(value).nbytes)
            free = {v for v in mine if last.get(v, -1) <= now}
            steps += _copied(graph, group, place)
            steps += self._group(scope, group, launches[position], frozenset(free))
            owners += [position] * (len(steps) - len(owners))
            for value in free:
                self.arena.give(mine.pop(value))
        for ref in mine.values():
            self.arena.give(ref)
        steps += self._passed_through(scope, ends.outputs)
        self.owners = (*owners, *[-1] * (len(steps) - len(owners)))
        return steps

    def _begun(self, graph: Graph, ends: _Ends) -> dict[Value, Ref]:
        """Where values are before any group: inputs, constants, and what is left at an end."""
        place = {Value(n): ref for n, ref in zip(graph.inputs, ends.inputs, strict=True)}
        for n, node in enumerate(graph.nodes):
            if node.op == "constant" and not is_inline(graph, n):
                place[Value(n)] = self.constant(dict(node.attrs)["value"])
        for value, ref in zip(graph.outputs, ends.outputs, strict=bool(ends.outputs)):
            if not is_source(graph, value.node):
                place.setdefault(value, ref)
        return place

    def _passed_through(self, scope: _Scope, outputs: tuple[Ref, ...]) -> list[Step]:
        """Outputs that are inputs, constants or other outputs."""
        graph, steps = scope.graph, list[Step]()
        for value, ref in zip(graph.outputs, outputs, strict=bool(outputs)):
            if is_inline(graph, value.node):
                source = self.constant(dict(graph[value.node].attrs)["value"])
            else:
                source = scope.place[value]
            if source != ref:
                steps.append(Copy(source, ref, graph.type_of(value).nbytes))
        return steps

    def _group(
        self, scope: _Scope, group: FusionGroup, launch: LaunchConfig, free: frozenset[Value]
    ) -> list[Step]:
        """`free`: values that nobody needs after this group."""
        graph, place = scope.graph, scope.place
        if group.body is not None:
            inner = launch.inner or (launch,) * len(group.body.groups)
            if not is_counted(graph[group.nodes[0]].op):
                return self._while(scope, group, group.body, inner, free)
            steps = self._loop(scope, group, group.body, inner, free)
            return [in_one(step) for step in steps] if RESIDENT.of(launch) else steps
        found = reads(graph, group.nodes)
        writes = tuple(place[v] for v in group.outputs)
        split = splitting_of(graph, group, launch)
        if split is not None:
            parts = tuple(self.arena.take(each.nbytes) for each in split.parts)
            for ref in parts:
                self.arena.give(ref)
            return list(split.runs(place, parts, writes))
        packing = packing_of(graph, group, launch)
        if packing is None:
            read = tuple(UNREAD if v in group.overwrites else place[v] for v in found)
            return [Run(graph, group, launch, read, writes)]
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
        self, scope: _Scope, group: FusionGroup, inner: FusionPlan,
        launches: tuple[LaunchConfig, ...], free: frozenset[Value],
    ) -> list[Step]:  # fmt: skip
        graph, place, level, node = scope.graph, scope.place, scope.level, group.nodes[0]
        call, types = graph.call(node), graph[node].types
        body, trips = host_loop(graph, group)
        carries = int(call["carries"])
        operands = [self._operand(scope, v) for v in graph[node].inputs]
        counter = self.arena.take(4)
        taken = [counter]
        rings = loop_rings(graph, group, inner)
        state = self._states(scope, group, rings, free, taken, trips)
        stacks = [self._stack(scope, Value(node, k)) for k in range(carries, len(types))]
        slices = [
            row
            for ref, type_ in zip(stacks, types[carries:], strict=True)
            for row in _rows(ref, level, type_.nbytes // trips, group.unroll)
        ]
        every = turns_of(rings)
        turns: list[tuple[Step, ...]] = []
        for turn in range(min(every, trips)):
            inputs = (counter, *(refs[turn] for refs in state), *operands[carries:])
            outputs = (*(refs[(turn + 1) % every] for refs in state), *slices)
            steps = self.plan(body, inner, launches, _Ends(inputs, outputs), level + 1, trips)
            turns.append(tuple(steps))
        done: list[Step] = [*_copies(operands[:carries], [refs[0] for refs in state], types)]
        done.append(Repeat(trips, level, counter, tuple(turns)))
        for k, ref in enumerate((*(refs[trips % every] for refs in state), *stacks)):
            home = place.get(Value(node, k))
            if home is not None and home != ref:
                done.append(Copy(ref, home, types[k].nbytes))
        for ref in (*taken, *(ref for ref in stacks if ref not in place.values())):
            self.arena.give(ref)
        return done

    def _while(
        self, scope: _Scope, group: FusionGroup, inner: FusionPlan,
        launches: tuple[LaunchConfig, ...], free: frozenset[Value],
    ) -> list[Step]:  # fmt: skip
        graph, place, level, node = scope.graph, scope.place, scope.level, group.nodes[0]
        types, most = graph[node].types, most_trips(graph, group)
        body = host_loop(graph, group)[0]
        operands = [self._operand(scope, v) for v in graph[node].inputs]
        first, invariants = operands[: len(types)], operands[len(types) :]
        homes = [place.get(Value(node, k)) for k in range(len(types))]
        counter = self.arena.take(4)
        taken = [counter]
        if most > 1:
            rings = loop_rings(graph, group, inner)
            found = self._states(scope, group, rings, free, taken, None)
            state = list(zip(*found, strict=True))
        else:  # a branch leaves its results where they are read, and copies nothing it replaces
            own = [self.arena.take(t.nbytes) for t in types]
            taken += own
            state = [tuple(first), tuple(h or r for h, r in zip(homes, own, strict=True))]
        turns: list[tuple[Step, ...]] = []
        for turn in range(min(len(state), most)):
            inputs = (counter, *state[turn], *invariants)
            ends = _Ends(inputs, state[(turn + 1) % len(state)])
            steps = self.plan(body, inner, launches, ends, level + 1, most)
            turns.append(tuple(steps))
        homing = tuple(tuple(_copies(refs, homes, types)) for refs in state)
        go, flags = tuple(refs[0] for refs in state[: len(turns)]), types[0].size
        done: list[Step] = [*_copies(first, state[0], types)]
        done.append(While(most, level, counter, tuple(turns), go, flags, homing))
        for ref in taken:
            self.arena.give(ref)
        return done

    def _states(
        self, scope: _Scope, group: FusionGroup, rings: Sequence[Ring], free: frozenset[Value],
        taken: list[Ref], trips: int | None,
    ) -> list[tuple[Ref, ...]]:  # fmt: skip
        """Where each turn of a loop finds each state, after `trips` of them the last one (None:
        nobody knows). What is taken for that alone is added to `taken`."""
        graph, place, node = scope.graph, scope.place, group.nodes[0]
        inputs = graph[node].inputs
        found: dict[int, tuple[Ref, ...]] = {}
        for ring in rings:
            own = [inputs[k] for k in ring.states]
            begins = [place[x] if x in free and inputs.count(x) == 1 else None for x in own]
            homes = [place.get(Value(node, k)) for k in ring.states]
            slots = known_slots(ring, begins, homes, trips)
            for slot in set(range(ring.buffers)) - slots.keys():
                slots[slot] = self.arena.take(graph.type_of(own[0]).nbytes)
                taken.append(slots[slot])
            for i, k in enumerate(ring.states):
                every = range(turns_of(rings))
                found[k] = tuple(slots[ring.slot(i, turn)] for turn in every)
        return [found[k] for k in sorted(found)]

    def _operand(self, scope: _Scope, value: Value) -> Ref:
        if is_inline(scope.graph, value.node):
            return self.constant(dict(scope.graph[value.node].attrs)["value"])
        return scope.place[value]

    def _stack(self, scope: _Scope, value: Value) -> Ref:
        """Where iterations leave their slices of a stacked result, one after another."""
        base = scope.place.get(value)
        # Nobody reads it, but the body writes it; or it moves with the iterations of an outer loop.
        if base is None or base.stride:
            return self.arena.take(scope.graph.type_of(value).nbytes)
        return base


def _copies(
    refs: Sequence[Ref], places: Sequence[Ref | None], types: Sequence[TensorType]
) -> list[Copy]:
    """States to where they are read, unless they are there, or nobody reads them."""
    triples = zip(refs, places, types, strict=False)  # `types` may go on with stacked results
    return [Copy(r, p, t.nbytes) for r, p, t in triples if p is not None and p != r]


def _rows(base: Ref, level: int, stride: int, count: int) -> list[Ref]:
    """Where one iteration leaves its `count` rows of a stacked result that grows by `stride`
    bytes."""
    return [
        replace(base, offset=base.offset + k * (stride // count), level=level, stride=stride)
        for k in range(count)
    ]


def _copied(graph: Graph, group: FusionGroup, place: Mapping[Value, Ref]) -> list[Step]:
    """Operands that a group overwrites but others need, or the caller, put where its results
    are."""
    pairs = ((v, updated_operand(graph, v)) for v in group.outputs)
    return [
        Copy(place[x], place[v], graph.type_of(v).nbytes)
        for v, x in pairs
        if x in group.overwrites and x is not None and place[x] != place[v]
    ]


def _taken(bound: Sequence[int], steps: Sequence[Step]) -> tuple[int, ...]:
    """The inputs that steps read."""
    read = {ref.index for ref in refs_of(steps) if ref.space == "in"}
    return tuple(k for k in bound if k in read)


def schedule(graph: Graph, candidate: Candidate) -> Schedule:
    """The steps of a candidate; the plan must be legal for the graph (`check_plan`)."""
    division = divided(graph, candidate)
    constants: dict[Literal, int] = {}
    once, call, held = _Scheduler(constants), _Scheduler(constants), Arena("held")
    call.known = {v: held.take(graph.type_of(v).nbytes) for v in division.held}
    prepare = _prepare(graph, candidate, division, once, held, call)
    rest = [k for k in range(len(candidate.plan.groups)) if k not in division.once]
    inputs = tuple(Ref("in", k) for k in range(len(graph.inputs)))
    outputs = tuple(Ref("out", k) for k in range(len(graph.outputs)))
    steps = tuple(call.plan(graph, *_part(candidate, rest), _Ends(inputs, outputs)))
    owners = tuple(rest[owner] if owner >= 0 else -1 for owner in call.owners)
    bound = constant_inputs(graph)
    binding = Binding(bound, _taken(bound, steps), held.peak, once.arena.peak)
    return Schedule(steps, tuple(constants), call.arena.peak, owners, prepare, binding)


def _part(
    candidate: Candidate, positions: Sequence[int]
) -> tuple[FusionPlan, tuple[LaunchConfig, ...]]:
    """Some groups of a candidate and their configurations."""
    groups = tuple(candidate.plan.groups[k] for k in positions)
    return FusionPlan(groups), tuple(candidate.launches[k] for k in positions)


def _prepare(
    graph: Graph, candidate: Candidate, division: Division, once: _Scheduler, held: Arena,
    call: _Scheduler,
) -> tuple[Step, ...]:  # fmt: skip
    """The steps that run once: groups, then whatever packs. Tells `call` where panels are."""
    first = sorted(division.once)
    made = dict.fromkeys(v for k in first for v in candidate.plan.groups[k].outputs)
    # All of it lives until the end: what packs comes last.
    once.known = {v: call.known.get(v) or once.arena.take(graph.type_of(v).nbytes) for v in made}
    inputs = tuple(Ref("in", k) for k in range(len(graph.inputs)))
    steps = once.plan(graph, *_part(candidate, first), _Ends(inputs, ())) if first else []
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
