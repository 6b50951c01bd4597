"""Lowering ends: at a limit of statements, of elements, of depth; long indices get names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.backends.cpu import backend as cpu
from autofuse.backends.registry import CPU_BACKEND
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements import values
from autofuse.kernel.ir import emit
from autofuse.kernel.ir.emit import Emitter, LoweringError
from autofuse.kernel.ir.types import Kernel, expressions, statements, walk
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.passes.split_lanes import MOST_PARTS
from autofuse.kernel.render import render_c
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Sym
from autofuse.plan.fusion.groups import is_source
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.records import FailureKind
from autofuse.tuning.evaluate import build
from tests.support.batching import Case, failures
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.stencils import chain, padded
from tests.support.unrolled_plans import GRAPH, candidate, fused, whole


def built(make: Callable[[GraphBuilder, Value], Value], shape: tuple[int, ...]) -> Graph:
    b = GraphBuilder()
    return b.build([make(b, b.input("x", shape, "f32"))])


def lowered(graph: Graph) -> Kernel:
    nodes = tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))
    return lower(extract(graph, FusionGroup(nodes, graph.outputs))[0], LaunchConfig())


def sines(b: GraphBuilder, x: Value, count: int = 900) -> Value:
    for _ in range(count):
        x = b.add("sin", x)
    return x


def of_rows(b: GraphBuilder, x: Value) -> Value:
    """Nothing of a row is computed before its lanes ask for it."""
    return b.add("reduce_max", sines(b, x), axes=(1,))


def of_parts(b: GraphBuilder, x: Value) -> Value:
    x = sines(b, x)
    return b.add("slice", x, start=(0, 3), stop=(6, 64), stride=(1, 2))


def of_turns(b: GraphBuilder, x: Value) -> Value:
    for k in range(400):
        x = b.add("neg" if k % 2 else "abs", b.add("reverse", x, axes=(1,)))
    return x


@pytest.mark.parametrize("make", [sines, of_rows, of_parts, of_turns])
def test_chains_are_deeper_than_pythons_limit_of_calls(
    make: Callable[[GraphBuilder, Value], Value],
) -> None:
    kernel = lowered(built(make, (6, 64)))
    made = [s for s in statements(kernel.body) if any(isinstance(e, Call) for e in expressions(s))]
    assert 400 < len(made) < 1000


def test_what_is_put_off_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of three waiting elements puts off nearly everything."""

    def some(b: GraphBuilder, x: Value) -> Value:
        rows = b.add("reduce_max", sines(b, x, 10), axes=(1,))
        return b.add("add", sines(b, x, 7), b.add("broadcast", rows, shape=(6, 64), dims=(0,)))

    monkeypatch.setattr(values, "DEEPEST", 3)
    graphs = [built(some, (6, 64)), chain(padded, (9, 10), 2)]
    cases = [Case(g, candidate(g, fused(g)), f"graph {k}") for k, g in enumerate(graphs)]
    assert not failures(cases)


def test_folds_nest_only_so_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST_FOLDS", 0)
    graph = built(lambda b, x: b.add("reduce_sum", x, axes=(0,)), (40, 64))
    with pytest.raises(LoweringError, match="more than 0 folds"):
        lowered(graph)


@pytest.mark.parametrize(
    ("limit", "message"),
    [("MOST_STATEMENTS", "more than 50 statements"), ("MOST_ELEMENTS", "more than 50 elements")],
)
def test_a_kernel_has_limits(limit: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, limit, 50)
    lowered(built(lambda b, x: sines(b, x, 10), (6, 64)))
    with pytest.raises(LoweringError, match=message):
        lowered(built(sines, (6, 64)))


def test_lowering_stops_where_the_limit_is() -> None:
    """Not one statement more is made, whatever was still to come."""
    emitter, put = Emitter(), 0
    with pytest.raises(LoweringError):
        while True:
            emitter.bind(Sym("x", DType.F32))
            put += 1
    assert put == emit.MOST_STATEMENTS == len(emitter.blocks[0].stmts)


def test_a_kernel_beyond_its_limits_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit, "MOST_STATEMENTS", 5)
    cpu.rendered.cache_clear()
    found = build(CPU_BACKEND, GRAPH, whole(1))
    assert found.artifact is None and found.failure is not None
    assert found.failure.kind is FailureKind.UNSUPPORTED
    assert "more than 5 statements" in found.failure.message


def test_short_indices_stay_as_they_are_and_long_ones_get_one_name() -> None:
    emitter = Emitter()
    short = long = ix.iadd(emitter.open("i", 1000), ix.lit(1))
    for k in range(ix.LARGEST):
        long = ix.iclamp(ix.iadd(long, ix.lit(1)), 0, 900 - k)
    assert ix.named(short, emitter.name_index) == short
    name = ix.named(long, emitter.name_index)
    assert isinstance(name, Sym) and name.extent == 901 - k
    assert ix.named(long, emitter.name_index) is name


def turned(b: GraphBuilder, x: Value) -> Value:
    """Rolls between two shapes: every reshape takes the index apart twice."""
    for k in range(10):
        shape = (64, 60) if k % 2 == 0 else (60, 64)
        x = b.add("reshape", x, shape=shape)
        rest = b.add("slice", x, start=(0, 1), stop=shape, stride=(1, 1))
        first = b.add("slice", x, start=(0, 0), stop=(shape[0], 1), stride=(1, 1))
        x = b.add("concat", rest, first, axis=1)
    return x


def test_indices_do_not_grow_without_end() -> None:
    graph = built(turned, (60, 64))
    kernel = lowered(graph)
    sizes = [sum(1 for _ in walk(e)) for s in statements(kernel.body) for e in expressions(s)]
    assert max(sizes) < 8 * ix.LARGEST
    assert any(name.startswith("let x") for name in map(str.strip, str(kernel).split("\n")))
    assert len(render_c(kernel)) < MOST_PARTS * 200 * len(sizes)
    assert not failures([Case(graph, candidate(graph, fused(graph)), "turned")])


def test_named_indices_and_stencils_are_right_on_the_emulator() -> None:
    graphs = [built(turned, (60, 64)), chain(padded, (9, 10), 3)]
    made = [one_kernel(graph) for graph in graphs]
    library = library_of(made)
    for graph, kernel in zip(graphs, made, strict=True):
        inputs = random_inputs(graph, 0)
        outputs = run_kernel(library, kernel, inputs)
        result = check(tuple(outputs), reference_of(graph, inputs))
        assert result.ok, result.message
