"""Facts about ops are fields of their rows: nothing else knows an op by its name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.cost.bounds import NOMINAL, group_bound_us
from autofuse.cost.work import group_work
from autofuse.enumerate.supernodes import supernodes_of
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.noise import Noise
from autofuse.graph.reference import evaluate, fold_error
from autofuse.graph.types import Graph, Value
from autofuse.kernel.ir.types import expressions, statements, walk
from autofuse.kernel.lower import lower
from autofuse.ops import spec as table
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Call, Expr
from autofuse.ops.spec import Family, Motion, OpSpec, Sample, all_specs, spec_of
from autofuse.ops.types import OpCall, TensorType
from autofuse.plan.fusion.groups import is_inline, is_source
from autofuse.plan.fusion.legality import check_group
from autofuse.plan.fusion.partition import is_rematerialisable
from autofuse.plan.types import FusionGroup, LaunchConfig
from search_spaces.cuda import CudaLaunchSpace
from tests.support.expr_eval import call_of, draw
from tests.support.op_cases import one_op

# What graphs are made of is known by name to the code that owns it.
STRUCTURE = ("input", "constant", "loop", "dot_general")
ROWS = [spec for spec in all_specs() if spec.name not in STRUCTURE]
MOVES = [spec for spec in ROWS if spec.family is Family.MOVEMENT]
F32, I32 = DType.F32, DType.I32
# Calls so large that it matters whether small axes are unrolled, and whether items are told apart.
LARGE: list[tuple[str, list[tuple[tuple[int, ...], DType]], dict[str, Any]]] = [
    ("broadcast", [((512,), F32)], {"shape": (512, 4), "dims": (0,)}),
    ("broadcast", [((), F32)], {"shape": (64, 512), "dims": ()}),
    ("concat", [((512, 2), F32), ((512, 2), F32)], {"axis": 1}),
    ("gather", [((512, 9), F32), ((4,), I32)], {"axis": 1}),
    ("pad", [((512, 3), F32), ((), F32)], {"low": (0, 1), "high": (0, 0)}),
    ("random_bits", [((2,), DType.U32), ((), DType.U32)], {"shape": (512, 4)}),
    ("reshape", [((2048,), F32)], {"shape": (512, 4)}),
    ("reverse", [((512, 4), F32)], {"axes": (1,)}),
    ("slice", [((512, 9), F32)], {"start": (0, 1), "stop": (512, 9), "stride": (1, 2)}),
    ("transpose", [((4, 512), F32)], {"perm": (1, 0)}),
]


def cases(spec: OpSpec) -> Iterator[Sample]:
    """The row's samples and its large calls."""
    yield from spec.samples()
    for name, operands, attrs in LARGE:
        if name == spec.name:
            yield Sample(tuple(TensorType(*each) for each in operands), attrs)


def between(name: str, sample: Sample) -> Graph:
    """The op among readers and writers: float operands and results are halved and negated."""
    b = GraphBuilder()
    operands = []
    for k, own in enumerate(sample.ins):
        x = b.input(f"x{k}", own.shape, own.dtype)
        operands.append(b.add("sqrt", x) if own.dtype.is_float else x)
    found = b.add_multi(name, *operands, **sample.attrs)
    return b.build([b.add("neg", v) if b.type_of(v).dtype is F32 else v for v in found])


def one_call(name: str, sample: Sample) -> Graph:
    """The op alone, as a library call is."""
    return one_op(spec_of(name), sample)


def of_constant(name: str, sample: Sample) -> Graph | None:
    """The op on a constant of one element, which readers may copy."""
    if len(sample.ins) != 1 or sample.ins[0].size != 1:
        return None
    b = GraphBuilder()
    one = b.constant(np.ones(sample.ins[0].shape), sample.ins[0].dtype)
    return b.build(b.add_multi(name, one, **sample.attrs))


def known(graph: Graph) -> dict[str, object]:
    """All that planning, costing, lowering and checking find out about a graph in one kernel."""
    nodes = tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))
    group = FusionGroup(nodes, tuple(sorted(set(graph.outputs))))
    rng = np.random.default_rng(0)
    inputs = [rng.uniform(0.25, 2.0, t.shape).astype(t.dtype.numpy) for t in graph.input_types]
    asked: list[str] = []

    def ask(name: str, options: tuple[Any, ...]) -> Any:
        asked.append(name)
        return options[0]

    CudaLaunchSpace().choose(graph, group, ask, "")
    own = Graph(graph.nodes, graph.inputs, group.outputs)
    rows = [(graph[n].spec, graph.call(n)) for n in nodes]
    calls = [replace(row.solves(call), kind="") for row, call in rows if row.solves is not None]
    return {
        "work": group_work(graph, group.nodes, group.outputs),
        "bound": group_bound_us(graph, group, NOMINAL),
        "forms": check_group(graph, group.nodes, group.outputs),
        "supernodes": [(a.own, a.full, a.reads, a.exports) for a in supernodes_of(graph).items],
        "rematerialisable": [is_rematerialisable(graph, n) for n in nodes],
        "kernel": calls or str(lower(own, LaunchConfig.of(tile=64), "k")),
        "launch": asked,
        "slack": [fold_error(n.spec, graph.call(i)) for i, n in enumerate(graph.nodes)],
        "noise": [repr(a.tolist()) for a in evaluate(graph, inputs, Noise(1))],
    }


@pytest.fixture
def twin(request: pytest.FixtureRequest) -> Iterator[tuple[OpSpec, str]]:
    """A row and the name of another that is equal to it."""
    spec: OpSpec = request.param
    other = replace(spec, name=f"toy_{spec.name}")
    table.register(other)
    yield spec, other.name
    del table.KNOWN[other.name]


@pytest.mark.wide(34)
@pytest.mark.parametrize("twin", ROWS, indirect=True, ids=[spec.name for spec in ROWS])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_op_under_another_name_is_the_same_op(twin: tuple[OpSpec, str]) -> None:
    spec, other = twin
    for sample in cases(spec):
        alone = spec.family in (Family.CONTRACTION, Family.SCATTER) or spec.transforms is not None
        alone |= spec.family is Family.SOLVER
        graphs = (one_call,) if alone else (between, of_constant)
        for graph_of in graphs:
            ours, theirs = graph_of(spec.name, sample), graph_of(other, sample)
            if ours is not None and theirs is not None:
                assert known(ours) == known(theirs)


def names_compared(tree: ast.AST) -> Iterator[str]:
    """Strings that some `node.op` is compared with."""
    for found in ast.walk(tree):
        if isinstance(found, ast.Compare) and getattr(found.left, "attr", "") == "op":
            for part in (p for right in found.comparators for p in ast.walk(right)):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_only_what_graphs_are_made_of_is_asked_for_by_name() -> None:
    """Baselines encode the rules of other systems; front ends, peers and what serves other systems
    translate names; simplifications are about ops that meet others. The compiled reference is an
    account of its own of what some ops mean."""
    root = Path(table.__file__).parent.parent
    told = ("baselines", "frontends", "interop", "peers", "simplify")
    rooms = {path: path.relative_to(root).parts[:2] for path in root.rglob("*.py")}
    files = [
        p for p, (room, *folder) in rooms.items() if room not in told and "truth" not in folder
    ]
    files += (root.parent / "search_spaces").glob("*.py")
    found = {(p.name, name) for p in files for name in names_compared(ast.parse(p.read_text()))}
    assert {(file, name) for file, name in found if name not in STRUCTURE} == set()
    assert ("groups.py", "constant") in found, "comparisons are seen"


def test_a_large_call_is_unrolled_by_its_row() -> None:
    """The forms of LARGE differ with the flag, so that the comparison above can tell."""
    (sample,) = (s for s in cases(spec_of("concat")) if s.ins[0].size == 1024)
    toy = replace(spec_of("concat"), name="toy", unrolls=False)
    table.register(toy)
    try:
        forms = [known(between(name, sample))["forms"] for name in ("concat", "toy")]
    finally:
        del table.KNOWN["toy"]
    assert forms[0] != forms[1]


# --- what rows say is true ------------------------------------------------------------------------


def moved(spec: OpSpec, sample: Sample) -> tuple[list[np.ndarray], np.ndarray]:
    """Data operands of different elements, and the output they make."""
    arrays, start = list(draw(sample)), 1.0
    data = [k for k, t in enumerate(sample.ins) if t.dtype.is_float]
    for k in data:
        size = sample.ins[k].size
        arrays[k] = np.arange(start, start + size).reshape(sample.ins[k].shape)
        start += size
    (out,) = spec.reference(tuple(arrays), call_of(spec, sample))
    return [arrays[k] for k in data], out.reshape(-1)


def wide(spec: OpSpec) -> list[Sample]:
    """Samples whose float64 values tell elements apart."""
    return [s for s in cases(spec) if s.ins[0].dtype is F32]


@pytest.mark.parametrize("spec", MOVES, ids=[spec.name for spec in MOVES])
def test_no_fewer_elements_are_needed_than_a_movement_row_says(spec: OpSpec) -> None:
    rng = np.random.default_rng(0)
    for sample in wide(spec):
        operands, out = moved(spec, sample)
        for made in {1, 2, 3, out.size // 2, out.size - 1, out.size}:
            if not 0 < made <= out.size:
                continue
            said = spec.least_needed(call_of(spec, sample), made)
            subsets = [np.arange(made), np.arange(out.size - made, out.size)]
            subsets += [rng.choice(out.size, made, replace=False) for _ in range(10)]
            for chosen in subsets:
                for least, operand in zip(said, operands, strict=False):
                    assert min(least, operand.size) <= np.isin(operand, out[chosen]).sum()


@pytest.mark.parametrize("spec", MOVES, ids=[spec.name for spec in MOVES])
def test_only_moves_that_use_no_element_twice_are_one_to_one(spec: OpSpec) -> None:
    once = True
    for sample in wide(spec):
        operands, out = moved(spec, sample)
        once &= len(operands) == 1 and len(np.unique(out)) == out.size
    assert not spec.one_to_one or once


@pytest.mark.parametrize("spec", [s for s in ROWS if s.varies], ids=lambda s: str(s.name))
def test_results_repeat_along_the_axes_that_do_not_vary(spec: OpSpec) -> None:
    for sample in spec.samples():
        call = call_of(spec, sample)
        (out,) = spec.reference(draw(sample), call)
        assert spec.varies is not None
        for axis in set(range(out.ndim)) - set(spec.varies(call)):
            assert (out == out.take([0], axis=axis)).all()


EXACT = [spec for spec in ROWS if spec.samples() and spec.family is not Family.CONTROL]


@pytest.mark.parametrize("spec", EXACT, ids=[spec.name for spec in EXACT])
def test_exact_calls_round_nothing(spec: OpSpec) -> None:
    """On operands of float32, exact results are float32 numbers; integers always are exact."""
    for sample in spec.samples():
        call = call_of(spec, sample)
        if spec.rounds(call) or not all(t.dtype is F32 for t in (*call.ins, *call.outs)):
            continue
        with np.errstate(all="ignore"):
            operands = tuple(a.astype(np.float64) for a in draw(sample))
            for result in spec.reference(operands, call):
                np.testing.assert_array_equal(result, result.astype(np.float32))


BODIES = [spec for spec in EXACT if spec.family is not Family.SOLVER]


@pytest.mark.parametrize("spec", BODIES, ids=[spec.name for spec in BODIES])
def test_rows_say_whether_their_bodies_divide(spec: OpSpec) -> None:
    """What is said of a row holds for its calls on f32, and no other row has such a body."""
    for sample in spec.samples():
        if not all(t.dtype is F32 for t in sample.ins):
            continue
        kernel = lower(canonical(one_op(spec, sample)), LaunchConfig.of(tile=64), "k")
        found = {
            e.fn
            for stmt in statements(kernel.body)
            for value in expressions(stmt)
            for e in walk(value)
            if isinstance(e, Call) and e.dtype is F32
        }
        assert bool(found & {"div", "sqrt"}) == spec.divides


def test_what_turns_floats_into_whole_numbers_says_so() -> None:
    said = {
        (spec.name, str(call.out.dtype))
        for spec in ROWS
        for call in (call_of(spec, sample) for sample in spec.samples())
        if spec.snaps(call) and call.ins[0].dtype is F32
    }
    kinds = {str(d) for d in DType if not d.is_float}
    rounding = {(name, "f32") for name in ("floor", "ceil", "round", "rem")}
    assert said == rounding | {("cast", kind) for kind in kinds}


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "terms"),
    [
        ("reduce_sum", [(3, 5, 7)], {"axes": (0, 2)}, 21),
        ("argmax", [(3, 5)], {"axis": 1}, 5),
        ("cumsum", [(3, 500)], {"axis": 0}, 3),
        ("exp", [(9,)], {}, 1),
        (
            "dot_general",
            [(16, 3, 5), (16, 5, 2)],
            {"lhs_contract": (2,), "rhs_contract": (1,), "lhs_batch": (0,), "rhs_batch": (0,)},
            5,
        ),
    ],
)
def test_terms_are_those_of_one_result(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], terms: int
) -> None:
    sample = Sample(tuple(TensorType(s, F32) for s in shapes), attrs)
    spec = spec_of(op)
    call = call_of(spec, sample)
    assert spec.terms(call) == terms
    eps = float(np.finfo(np.float32).eps)
    error = eps * terms**0.5 if terms > 1 and op != "argmax" else 0.0
    assert fold_error(spec, call) == pytest.approx(error)


def doubled(call: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    return (pull(0, index[:-1]),)


DOUBLED = OpSpec(
    name="toy_doubled",
    family=Family.MOVEMENT,
    infer=lambda call: (TensorType((*call.ins[0].shape, 2), call.ins[0].dtype),),
    reference=lambda arrays, call: (np.stack([arrays[0], arrays[0]], axis=-1),),
    flops=lambda call: 0.0,
    samples=lambda: [Sample((TensorType((3, 4), F32),))],
    body=doubled,
    axes=lambda call: ((*range(call.ins[0].rank), None),),
    motion=Motion.REPEAT,
    varies=lambda call: tuple(range(call.ins[0].rank)),
)


def test_a_new_movement_that_repeats_is_computed_once() -> None:
    """Its readers' work counts once per different element, and every reader copies it."""
    table.register(DOUBLED)
    try:
        b = GraphBuilder()
        x = b.input("x", (64, 4), F32)
        graph = b.build([b.add("exp", b.add("toy_doubled", x))])
        work = group_work(graph, (1, 2), (Value(2),))
        assert work.special == 15 * 64 * 4
        assert supernodes_of(graph).rematerialised == {1}
        one = b.add("toy_doubled", b.constant(1.0, F32))
        free = b.build([b.add("exp", one)])
        assert is_rematerialisable(free, one.node)
        assert is_inline(free, free[one.node].inputs[0].node)
    finally:
        del table.KNOWN["toy_doubled"]
