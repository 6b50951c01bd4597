"""Updates in place: results lie where operands did, and nothing that is needed is lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autofuse.backends.cuda.program import KernelLaunch, LoopAction, cuda_program
from autofuse.baselines import BASELINES
from autofuse.cost.traffic import plan_traffic
from autofuse.graph.canonical import canonical
from autofuse.graph.composites.moves import overwrite, slice_at
from autofuse.graph.loops import LoopWriter
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.kernel.ir.types import Loop, Store, statements
from autofuse.kernel.lower import extract, lower
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit
from autofuse.plan.fusion.groups import group_of, is_source, ordered_plan
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.fusion.overwriting import overwrites, stored
from autofuse.plan.program.schedule import Copy, Repeat, Run, Schedule, Step, kernel_runs, schedule
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from benchmarks.fuzz.random_plans import random_candidate
from tests.support import emulated_plans
from tests.support.batching import Case, failures
from tests.support.unrolled_plans import candidate, fused

ROWS, COLUMNS, PLACES = 6, 40, 5
F32, I32 = DType.F32, DType.I32


def base(w: GraphWriter) -> tuple[Value, Value, Value]:
    """Two arrays, and places of which some are out of range."""
    x, y = (w.input(name, (ROWS, COLUMNS), F32, low=-1.0, high=1.0) for name in "xy")
    return x, y, w.input("places", (PLACES,), I32, low=-2, high=ROWS + 2)


def row_at(w: GraphWriter, v: Value, at: Value, rows: int = 1) -> Value:
    zero = w.constant(0, I32)
    return slice_at(w, v, (at, zero), (rows, COLUMNS))


def put(w: GraphWriter, v: Value, row: Value, at: Value) -> Value:
    return overwrite(w, v, row, (at, w.constant(0, I32)))


class _Chain:
    """Random arrays made from others, most of them by writing a few rows."""

    def __init__(self, w: GraphWriter, arrays: list[Value], places: list[Value], seed: int) -> None:
        self.w, self.arrays, self.places = w, arrays, places
        self.rng = np.random.default_rng(seed)

    def pick(self, values: list[Value]) -> Value:
        return values[int(self.rng.integers(len(values)))]

    def step(self) -> None:
        w, v, other = self.w, self.pick(self.arrays[-3:]), self.pick(self.arrays)
        if self.rng.random() < 0.25:
            made = w.op("tanh", v) if self.rng.random() < 0.5 else w.mul(w.add(v, other), 0.5)
        else:
            rows, at = int(self.rng.integers(1, 4)), self.pick(self.places)
            read = at if self.rng.random() < 0.5 else self.pick(self.places)
            row = row_at(w, v if self.rng.random() < 0.5 else other, read, rows)
            # So that one item reads what another one writes.
            row = w.reverse(row, (1,)) if self.rng.random() < 0.3 else row
            made = put(w, v, w.op("sin", row) if self.rng.random() < 0.7 else row, at)
        self.arrays.append(made)


def chain(seed: int) -> Graph:
    """A chain of updates, on its own or in a loop of one or two states."""
    rng, w = np.random.default_rng(seed), GraphWriter()
    x, y, places = base(w)
    if rng.random() < 0.4:
        at = [w.op("gather", places, w.constant(k, I32), axis=0) for k in range(PLACES)]
        made = _Chain(w, [x, y], at, seed)
        for _ in range(int(rng.integers(2, 7))):
            made.step()
        return canonical(w.build([made.arrays[-1], made.pick(made.arrays[2:])]))
    loop = LoopWriter(w, int(rng.integers(2, PLACES)))
    init = [x if rng.random() < 0.5 else w.op("neg", x), y][: int(rng.integers(1, 3))]
    states = [loop.state(v) for v in init]
    b, others = loop.body, [loop.capture(y)]
    at = [loop.step, b.add(loop.step, 1), b.op("gather", loop.capture(places), loop.step, axis=0)]
    news = []
    for k, state in enumerate(states):
        made = _Chain(b, [*others, *states, state], at, seed + k)
        for _ in range(int(rng.integers(1, 5))):
            made.step()
        news.append(made.arrays[-1])
    stacks = [row_at(b, news[-1], loop.step)] if rng.random() < 0.3 else []
    found = loop.finish(news, stacks)
    return canonical(w.build([*found, *(init if rng.random() < 0.3 else ())]))


def case_of(seed: int, steps: int) -> Case:
    """A random plan; of loops often the one whose bodies are fused most."""
    graph, label = chain(seed), f"case_of({seed}, {steps})"
    if steps % 2 and any(node.op == "loop" for node in graph.nodes):
        return Case(graph, host_plan(graph), label)
    return Case(graph, random_candidate(graph, seed, steps), label)


SEEDS = st.tuples(st.integers(0, 2**31), st.integers(0, 60))
ONCE = (Phase.explicit, Phase.generate)


@settings(max_examples=2, phases=ONCE)
@given(st.lists(SEEDS, min_size=40, max_size=40, unique=True))
def test_random_chains_of_updates_give_the_reference_result(batch: list[tuple[int, int]]) -> None:
    wrong = failures([case_of(*drawn) for drawn in batch])
    assert not wrong, "\n".join(wrong)


@settings(max_examples=1, phases=ONCE)
@given(st.lists(SEEDS, min_size=15, max_size=15, unique=True))
def test_random_chains_of_updates_on_cuda(batch: list[tuple[int, int]]) -> None:
    wrong = emulated_plans.failures([emulated_plans.on_cuda(case_of(*d), d[0]) for d in batch])
    assert not wrong, "\n".join(wrong)


def test_chains_are_often_updated_in_place() -> None:
    made = [case_of(seed, 4) for seed in range(40)]
    runs = [kernel_runs(schedule(c.graph, c.candidate).steps) for c in made]
    assert sum(any(run.group.overwrites for run in each) for each in runs) > 15


# What is copied, and what is written


def planned(graph: Graph, rule: str = "unfused") -> Candidate:
    """The plan of a rule, loops run by the host with their bodies in one kernel each."""
    return candidate(graph, BASELINES[rule](graph).plan)


def sweep(trip: int = PLACES, read_after: bool = False) -> Graph:
    """Each iteration changes one row at a place that data say."""
    w = GraphWriter()
    x, _, places = base(w)
    loop = LoopWriter(w, trip)
    state = loop.state(x)
    b = loop.body
    at = b.op("gather", loop.capture(places), loop.step, axis=0)
    new = put(b, state, b.op("sin", row_at(b, state, at)), at)
    stacks = [b.reduce("reduce_sum", state, (0,))] if read_after else []
    return canonical(w.build(loop.finish([new], stacks)))


def host_plan(graph: Graph, body_groups: tuple[tuple[int, ...], ...] = ()) -> Candidate:
    """The one loop of a graph run by the host, its body in one kernel or in these."""
    node = next(n for n, each in enumerate(graph.nodes) if each.op == "loop")
    body: Graph = graph.call(node)["body"]
    groups = [group_of(body, nodes) for nodes in body_groups]
    inner = ordered_plan(body, groups) if groups else fused(body)
    own = group_of(graph, [node], inner)
    computed = (n for n in range(len(graph.nodes)) if not is_source(graph, n))
    rest = [group_of(graph, [n]) for n in computed if n != node]
    return candidate(graph, ordered_plan(graph, [own, *rest]))


def repeat_of(found: Schedule) -> Repeat:
    (repeat,) = (step for step in found.steps if isinstance(step, Repeat))
    return repeat


def copies(steps: tuple[Step, ...]) -> list[Copy]:
    return [step for step in steps if isinstance(step, Copy)]


def test_a_state_that_is_updated_in_place_has_one_buffer() -> None:
    graph = sweep()
    found = schedule(graph, host_plan(graph))
    repeat = repeat_of(found)
    (turn,) = repeat.turns
    assert not copies(turn)
    (run,) = turn
    assert isinstance(run, Run) and run.writes[0].space == "out"
    (first,) = copies(found.steps)
    assert (first.source.space, first.target.space) == ("in", "out"), "the caller's array stays"


def test_its_kernel_writes_one_row() -> None:
    graph = sweep()
    (run,) = kernel_runs(schedule(graph, host_plan(graph)).steps)
    kernel = lower(extract(run.graph, run.group)[0], LaunchConfig.of(tile=8))
    assert [p.role for p in kernel.params] == ["in", "in", "out"]
    (store,) = (s for s in statements(kernel.body) if isinstance(s, Store))
    (grid,) = (s for s in kernel.body if isinstance(s, Loop))
    assert grid.extent == Lit(COLUMNS // 8, DType.I64), str(kernel)
    assert store.buffer == "out0"


def test_a_row_more_or_less_costs_a_row() -> None:
    """By the traffic model, for each iteration: a row read and one written, places apart."""
    few, many = (sweep(trip) for trip in (2, 4))
    made = [plan_traffic(g, host_plan(g).plan) for g in (few, many)]
    row = COLUMNS * F32.itemsize
    assert made[1].written_bytes - made[0].written_bytes == 2 * row


def test_who_reads_a_state_runs_before_it_is_overwritten() -> None:
    """Though the plan has it the other way round."""
    graph = sweep(read_after=True)
    body: Graph = graph.call(graph.outputs[0].node)["body"]
    (sums,) = (n for n, node in enumerate(body.nodes) if node.op == "reduce_sum")
    update = [n for n in range(len(body.nodes)) if n != sums and body[n].op not in
              ("input", "constant")]  # fmt: skip
    made = host_plan(graph, (tuple(update), (sums,)))
    loop = next(g for g in made.plan.groups if g.body)
    assert loop.body is not None
    turned = tuple(reversed(loop.body.groups))
    for groups in (loop.body.groups, turned):
        own = FusionPlan(tuple(
            type(g)(g.nodes, g.outputs, FusionPlan(groups)) if g.body else g
            for g in made.plan.groups
        ))  # fmt: skip
        case = Case(graph, Candidate(own, made.launches), "turned")
        repeat = repeat_of(schedule(graph, case.candidate))
        order = [sums in run.group.nodes for run in repeat.turns[0] if isinstance(run, Run)]
        assert order == [True, False]
        assert len(repeat.turns) == 1 or len(copies(repeat.turns[0])) <= 1
        assert not failures([case])


def test_what_is_read_elsewhere_in_the_same_kernel_is_not_overwritten() -> None:
    """The row that an iteration reads may be the one that another item writes."""
    w = GraphWriter()
    x, _, places = base(w)
    loop = LoopWriter(w, PLACES)
    state, b = loop.state(x), loop.body
    where = loop.capture(places)
    at = b.op("gather", where, loop.step, axis=0)
    other = b.op("gather", where, b.sub(PLACES - 1, loop.step), axis=0)
    graph = canonical(w.build(loop.finish([put(b, state, row_at(b, state, other), at)])))
    made = host_plan(graph)
    assert not any(run.group.overwrites for run in kernel_runs(schedule(graph, made).steps))
    assert not failures([Case(graph, made, "elsewhere")])


def test_a_single_element_is_written_where_anything_is_read() -> None:
    """All that it depends on was read before: a step of a triangular solver is one kernel."""
    w = GraphWriter()
    x = w.input("x", (COLUMNS,), F32, low=-1.0, high=1.0)
    loop = LoopWriter(w, COLUMNS)
    state, b = loop.state(x), loop.body
    whole = b.mul(b.reduce("reduce_sum", state, (0,)), 0.25)
    new = overwrite(b, state, b.reshape(whole, (1,)), (loop.step,))
    graph = canonical(w.build(loop.finish([new])))
    made = host_plan(graph)
    (run,) = kernel_runs(schedule(graph, made).steps)
    assert run.group.overwrites
    assert not failures([Case(graph, made, "one element")])


@pytest.mark.parametrize("is_read", [False, True])
def test_a_single_element_is_written_beside_results_that_do_not_need_the_array(
    is_read: bool,
) -> None:
    """A step of dynamic programming counts on, too. A sum of the array may be taken too late."""
    w = GraphWriter()
    x = w.input("x", (COLUMNS,), F32, low=-1.0, high=1.0)
    loop = LoopWriter(w, COLUMNS)
    state, count, b = loop.state(x), loop.state(w.constant(0, F32)), loop.body
    whole = b.reduce("reduce_sum", state, (0,))
    new = overwrite(b, state, b.reshape(b.mul(whole, 0.25), (1,)), (loop.step,))
    graph = canonical(
        w.build(loop.finish([new, b.add(count, whole if is_read else b.constant(1.0, F32))]))
    )
    made = host_plan(graph)
    found = [run for run in kernel_runs(schedule(graph, made).steps) if run.group.overwrites]
    assert bool(found) != is_read
    assert not failures([Case(graph, made, "beside others")])


def test_a_kernel_that_reads_beside_what_it_overwrites_stores_all_of_it() -> None:
    """A row is made of its neighbour columns: one kernel copies the array, two do not."""
    w = GraphWriter()
    x, _, _ = base(w)
    loop = LoopWriter(w, ROWS)
    state, b = loop.state(x), loop.body
    row = slice_at(b, state, (loop.step, b.constant(1, I32)), (1, COLUMNS - 1))
    new = overwrite(b, state, b.op("sin", row), (loop.step, b.constant(0, I32)))
    graph = canonical(w.build(loop.finish([new])))
    body: Graph = graph.call(graph.outputs[0].node)["body"]
    (out,) = body.outputs
    update = body[out.node].inputs[1]
    inside = group_of(body, [n for n in range(len(body.nodes)) if not is_source(body, n)]).nodes
    assert stored(body, inside, out) == out
    assert stored(body, (out.node,), out) == update


@pytest.mark.parametrize(("read", "apart"), [(0, True), (1, False), (2, True), (9, False)])
def test_windows_of_a_counter_that_lie_apart_may_be_read(read: int, apart: bool) -> None:
    """Iteration i writes row i + 1, out of `read` + i; where that is moved, nothing is certain."""
    w = GraphWriter()
    x, _, _ = base(w)
    loop = LoopWriter(w, ROWS - 2)
    state, b = loop.state(x), loop.body
    turned = b.reverse(row_at(b, state, b.add(loop.step, read)), (1,))
    graph = canonical(w.build(loop.finish([put(b, state, turned, b.add(loop.step, 1))])))
    body: Graph = graph.call(graph.outputs[0].node)["body"]
    group = fused(body).groups[0]
    assert bool(overwrites(body, group, ROWS - 2)) == apart
    assert not overwrites(body, group), "in a graph that is no body inputs are the caller's"
    assert not failures([Case(graph, host_plan(graph), f"row {read}")])


def test_an_array_that_is_made_for_it_is_not_copied() -> None:
    """neg(x) is written straight to where its update belongs, and so is what a loop begins with."""
    w = GraphWriter()
    x, _, places = base(w)
    at = w.op("gather", places, w.constant(0, I32), axis=0)
    inside = put(w, w.op("neg", x), row_at(w, x, at), at)
    loop = LoopWriter(w, 3)
    state = loop.state(w.op("exp", x))
    (last,) = loop.finish([loop.body.op("sin", state)])
    graph = canonical(w.build([inside, last]))
    found = schedule(graph, planned(graph))
    assert not copies(found.steps)
    assert not failures([Case(graph, planned(graph), "made for it")])


@pytest.mark.parametrize("swap", [False, True])
def test_two_updates_of_one_large_array_are_two_kernels(swap: bool) -> None:
    """In one kernel every element would be written again. Where rows change places the second
    update needs what the first one writes over, so that must not be in place."""
    w = GraphWriter()
    x, y = (w.input(name, (512, COLUMNS), F32) for name in "xy")
    loop = LoopWriter(w, 4)
    state, b = loop.state(x), loop.body
    source = state if swap else loop.capture(y)
    one, other = loop.step, b.sub(500, loop.step)
    row, second = row_at(b, source, one), row_at(b, source, other)
    graph = canonical(w.build(loop.finish([put(b, put(b, state, second, one), row, other)])))
    node = graph.outputs[0].node
    body: Graph = graph.call(node)["body"]
    updates = tuple(n for n, each in enumerate(body.nodes) if each.op == "dynamic_update_slice")
    found = check_group(body, updates, (body.outputs[0],))
    assert isinstance(found, Refusal) and found.rule == "update"
    inner = legalise(body, BASELINES["xla-2022"](body).plan)[0]
    made = candidate(graph, ordered_plan(graph, [group_of(graph, [node], inner)]))
    repeat = repeat_of(schedule(graph, made))
    assert (len(repeat.turns) == 1) != swap
    assert not failures([Case(graph, made, "two rows")])


def test_cuda_programs_pass_an_overwritten_array_once() -> None:
    graph = sweep()
    program = cuda_program(graph, host_plan(graph))
    (loop,) = (action for action in program.actions if isinstance(action, LoopAction))
    (launch,) = loop.turns[0]
    assert isinstance(launch, KernelLaunch)
    assert [argument.written for argument in launch.arguments] == [False, False, True]
