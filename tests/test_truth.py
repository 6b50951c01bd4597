"""The compiled float64 reference: what NumPy says, and its own faults found."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.noise import Noise, Rounding
from autofuse.graph.reference import Runs, random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import reference_of
from autofuse.measure.truth import compiled as truth
from autofuse.measure.truth import products as truth_products
from autofuse.measure.truth import text as truth_text
from autofuse.measure.truth.build import LateTruthError
from autofuse.measure.truth.checks import difference
from autofuse.measure.truth.compiled import CompiledRuns, expected
from autofuse.measure.truth.cost import is_brief
from autofuse.measure.truth.threads import _blas_threads, one_thread_of_blas, side_by_side
from autofuse.ops.convolution import conv_attrs
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import all_specs
from tests.support.random_graphs import ALL_MOVES, SHAPES, WIDE_SHAPES, random_graph
from tests.support.simplify_cases import graph_of
from tests.support.simplify_loop_cases import LOOPS
from tests.support.simplify_update_cases import UPDATES
from tests.support.simplify_while_cases import WHILES

COUNT = 24  # graphs; each takes a quarter of a second, most of it compiling


def agrees(graph: Graph, inputs: tuple[np.ndarray, ...]) -> None:
    """Within what rounding in float64 moves NumPy's own results."""
    plain, runs = Runs(graph, inputs), CompiledRuns(graph, inputs, worth_s=0.0)
    wanted = [np.asarray(a) for a in plain()]
    found = [np.asarray(a) for a in runs()]
    assert runs.notes == []
    assert difference(found, wanted, plain) == ""


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_graphs(seed: int) -> None:
    graph = random_graph(seed, 25, SHAPES if seed % 2 else WIDE_SHAPES, ALL_MOVES)
    agrees(graph, random_inputs(graph, seed))


@pytest.mark.parametrize("case", [*LOOPS[::3], *UPDATES[::2], *WHILES[::2]])
def test_loops_and_updates(case: object) -> None:
    graph = graph_of(case.inputs, case.before)
    agrees(graph, random_inputs(graph, 1))


def looped(op: str, attrs: dict[str, object], ins: tuple[object, ...]) -> Graph:
    """A loop of one iteration around an op, whose floats are carried as they are."""
    b = GraphBuilder()
    counter = b.input("i", (), DType.I32)
    inner = [b.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(ins)]
    results = b.add_multi(op, *inner, **attrs)
    body = b.build(results)
    del counter
    outer = GraphBuilder()
    given = [outer.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(ins)]
    return outer.build(outer.add_multi("loop", *given, body=body, trip=2, carries=0))


def of(
    function: Callable[..., object], *shapes: tuple[int, ...]
) -> tuple[Graph, tuple[np.ndarray, ...]]:
    graph = trace(function, *(spec(s) for s in shapes))
    return graph, random_inputs(graph, 0)


@pytest.mark.parametrize("dtype", [DType.BF16, DType.F16])
def test_results_are_rounded_to_their_types(dtype: DType) -> None:
    b = GraphBuilder()
    x = b.input("x", (64,), dtype)
    wide = b.add("cast", b.add("exp", x), dtype=str(DType.F32))
    graph = b.build([b.add("exp", x), b.add("sqrt", wide)])
    inputs = (np.linspace(-20.0, 20.0, 64).astype(dtype.numpy),)
    with np.errstate(over="ignore"):
        narrow = np.exp(inputs[0].astype(np.float64)).astype(dtype.numpy).astype(np.float64)
    normal = narrow >= 2.0**-14  # below, halves have fewer bits
    for runs in (Runs(graph, inputs), CompiledRuns(graph, inputs, worth_s=0.0)):
        found, root = runs(Rounding())
        assert np.array_equal(found[normal], narrow[normal])
        assert np.array_equal(root[normal], np.sqrt(narrow[normal]).astype(np.float32))


def test_noise_moves_results_as_numpys_does() -> None:
    def program(x: object, w: object) -> object:
        return xp.cumulative_sum(xp.tanh(x * w), axis=0)

    graph, inputs = of(program, (400, 90), (90,))
    plain, runs = Runs(graph, inputs), CompiledRuns(graph, inputs, worth_s=0.0)
    (exact,) = plain()
    ours = np.mean([np.square(runs(Noise(k))[0] - exact) for k in range(4)])
    theirs = np.mean([np.square(plain(Noise(k))[0] - exact) for k in range(4)])
    assert 0.8 < ours / theirs < 1.25
    assert np.array_equal(runs()[0], runs()[0])


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32])
def test_casts_round_once_and_noise_overflows(dtype: DType) -> None:
    b = GraphBuilder()
    x = b.input("x", (4000,), DType.F64)
    narrow = b.add("cast", x, dtype=str(dtype))
    graph = b.build([b.add("mul", narrow, narrow)])
    rng = np.random.default_rng(0)
    data = (rng.standard_normal(4000) * 10.0 ** rng.integers(-6, 6, 4000),)
    agrees(graph, data)
    runs, plain = CompiledRuns(graph, data, worth_s=0.0), Runs(graph, data)
    assert np.isinf(runs(Noise(1))[0]).sum() == np.isinf(plain(Noise(1))[0]).sum()


FAULTS = {
    "off by one": (lambda text: text.replace("o0[", "o0[(x0 > 0) + ", 1)),
    "lost last element": (lambda text: text.replace("x0 < v", "x0 < -1 + v", 1)),
    "1e-4 too large": (lambda text: text.replace("= v", "= 1.0001 * v", 1)),
    "wrong mask": (lambda text: text.replace(" > ", " >= ", 1)),
}


def masked(x: object, y: object) -> object:
    return xp.where(x > y, xp.exp(x), y * y)


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_kernels_are_found_and_numpy_decides(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = of(masked, (6, 1500), (6, 1500))
    rng = np.random.default_rng(0)
    inputs = tuple(np.round(rng.standard_normal((6, 1500))).astype(np.float32) for _ in "xy")
    with planted(FAULTS[name], monkeypatch):
        runs = CompiledRuns(graph, inputs, worth_s=0.0)
        found = runs()
    assert len(runs.notes) == 1 and "NumPy computes it" in runs.notes[0]
    assert np.array_equal(found[0], Runs(graph, inputs)()[0])
    runs(Noise(1))
    assert len(runs.notes) == 1


class planted:  # noqa: N801 - a context
    """Kernels whose text `change` has changed."""

    def __init__(self, change: Callable[[str], str], patch: pytest.MonkeyPatch) -> None:
        self.change, self.patch, self.changed = change, patch, 0

    def __enter__(self) -> None:
        truth_text.kernel_text.cache_clear()
        written = truth_text._Printer.block
        del written
        lines = truth_text._lines

        def other(body: tuple[object, ...]) -> list[str]:
            text = "\n".join(lines(body))
            new = self.change(text)
            self.changed += new != text
            return [new]

        self.patch.setattr(truth_text, "_lines", other)

    def __exit__(self, *_: object) -> None:
        truth_text.kernel_text.cache_clear()
        self.patch.undo()
        assert self.changed, "the fault was not planted"


def test_faults_in_loops_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that shows in a later iteration only."""
    b = GraphBuilder()
    i, s, x = (
        b.input("i", (), DType.I32),
        b.input("s", (8,), DType.F32),
        b.input("x", (8,), DType.F32),
    )
    wide = b.add("broadcast", i, shape=(8,), dims=())
    later = b.add("gt", wide, b.add("broadcast", b.constant(5, DType.I32), shape=(8,), dims=()))
    new = b.add("select", later, b.add("mul", s, x), b.add("add", s, x))
    body = b.build([new])
    outer = GraphBuilder()
    given = [outer.input(n, (8,), DType.F32) for n in "sx"]
    graph = outer.build([outer.add("loop", *given, body=body, trip=9, carries=1)])
    inputs = random_inputs(graph, 0)
    agrees(graph, inputs)
    with planted(lambda text: text.replace(" * ", " * 1.0001 * ", 1), monkeypatch):
        runs = CompiledRuns(graph, inputs, worth_s=0.0)
        found = runs()
    assert len(runs.notes) == 1 and "loop" in runs.notes[0]
    assert np.array_equal(found[0], Runs(graph, inputs)()[0])


CONV = {"low": (1, 1), "high": (1, 0), "stride": (1, 2)}


def convolution(**given: object) -> tuple[Graph, tuple[np.ndarray, ...]]:
    b = GraphBuilder()
    x = b.input("x", (2, 8, 9, 7), DType.F32)
    w = b.input("w", (6, 8, 3, 2), DType.F32)
    graph = b.build([b.add("conv", x, w, **conv_attrs(2, **given))])
    return graph, random_inputs(graph, 0)


@pytest.mark.parametrize(
    "given", [{}, CONV, {"rhs_dilation": (2, 1)}, {"lhs_dilation": (2, 2), "low": (1, -1)}]
)
def test_convolutions_tap_by_tap(given: dict[str, object]) -> None:
    agrees(*convolution(**given))


@pytest.mark.parametrize("place", [0, 77, -1])
def test_faults_of_convolutions_are_found(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, inputs = convolution()

    def wrong(operands: tuple[np.ndarray, ...], call: object) -> np.ndarray:
        made = np.array(truth_products.by_taps(operands, call))
        made.flat[place] *= 1.0001
        return made

    monkeypatch.setattr(truth, "by_taps", wrong)
    runs = CompiledRuns(graph, inputs, worth_s=0.0)
    found = runs()
    assert len(runs.notes) == 1 and np.array_equal(found[0], Runs(graph, inputs)()[0])


def test_without_a_compiler_numpy_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, inputs = of(masked, (4, 5), (4, 5))
    monkeypatch.setenv("CC", "no-such-compiler-here")
    runs = CompiledRuns(graph, inputs, worth_s=0.0)
    assert not runs.compiled and "NumPy alone" in runs.notes[0]
    assert np.array_equal(runs()[0], Runs(graph, inputs)()[0])


def test_one_run_for_who_serves() -> None:
    graph, inputs = of(masked, (4, 5), (4, 5))
    assert np.array_equal(expected(graph, inputs)[0], Runs(graph, inputs)()[0])
    with pytest.raises(LateTruthError):
        expected(graph, inputs, 0.0)


def test_a_reference_is_the_same() -> None:
    graph, inputs = of(masked, (4, 500), (4, 500))
    plain = reference_of(graph, inputs)
    ours = reference_of(graph, inputs, evaluate=lambda g, x: CompiledRuns(g, x, worth_s=0.0))
    assert np.allclose(plain.outputs[0].expected, ours.outputs[0].expected, rtol=1e-14)
    ratio = np.median(ours.outputs[0].tolerance / plain.outputs[0].tolerance)
    assert 0.5 < ratio < 2.0


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_ops_that_compile_inside_a_loop(every: int) -> None:
    """One loop of each op's first sample: what cannot be compiled is NumPy's."""
    compiled = 0
    for row in all_specs()[::every]:
        samples = row.samples()
        if not samples or row.name in ("constant",):
            continue
        graph = looped(row.name, dict(samples[0].attrs), samples[0].ins)
        inputs = random_inputs(graph, 2, samples[0].low, samples[0].high)
        agrees(graph, inputs)
        compiled += CompiledRuns(graph, inputs, worth_s=0.0).compiled
    assert compiled > 60 // every


@pytest.mark.parametrize("shapes", [((300, 70), (70, 40)), ((3, 90, 40), (3, 40, 30))])
def test_products_on_all_cores(
    shapes: tuple[tuple[int, ...], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truth_products, "_SHARED", 1.0)
    graph, inputs = of(lambda a, b: a @ b, *shapes)
    agrees(graph, inputs)
    seen = Mock(side_effect=truth_products.by_rows)
    monkeypatch.setattr(truth, "by_rows", seen)
    CompiledRuns(graph, inputs)(Noise(1))
    assert seen.called


def test_threads_of_the_reference_share_parts_and_say_what_fails() -> None:
    done: list[int] = []
    side_by_side(done.append, range(7))
    assert sorted(done) == list(range(7))
    side_by_side(done.append, [])
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda part: 1 // part, [1, 1, 1, 0])


def test_products_of_the_reference_have_one_thread_of_blas() -> None:
    threads = _blas_threads()
    if threads is None:
        pytest.skip("NumPy has another BLAS here")
    before = threads.get()
    first, second = one_thread_of_blas(), one_thread_of_blas()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads.get() == 1  # the second one still wants it
    second.__exit__(None, None, None)
    assert threads.get() == before


def test_long_texts_that_do_little_are_compiled_without_effort() -> None:
    def long(x: object) -> object:
        for _ in range(200):
            x = xp.sin(x) + 0.5
        return x

    assert is_brief(of(long, (10,))[0])
    assert not is_brief(of(long, (1_000_000,))[0])
    graph, inputs = of(long, (10,))
    (found,), (expected,) = CompiledRuns(graph, inputs, worth_s=0.0)(), Runs(graph, inputs)()
    assert np.allclose(found, expected, rtol=1e-12)
