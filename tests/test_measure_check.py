"""The trust rule: what passes, and what must never pass."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.noise import Noise
from autofuse.graph.reference import Runs, evaluate, random_inputs
from autofuse.measure.check.compare import (
    WorkloadReference,
    build_reference,
    check,
    poison,
    reference_of,
)
from autofuse.ops.dtypes import DType
from autofuse.ops.layout import PART_BYTES, laid_out
from autofuse.ops.types import TensorType
from autofuse.zoo import zoo_graph

N = 100_000


def reference(values: np.ndarray, dtype: DType, ulps: float = 2.0) -> WorkloadReference:
    """Of a well-conditioned program that rounds once, by so much."""

    def run(scale: float, seed: int) -> Sequence[np.ndarray]:
        if not dtype.is_float:
            return (values,)
        noise = np.random.default_rng(seed).uniform(-1, 1, values.shape)
        return (values * (1 + ulps * scale * dtype.eps * noise),)

    return build_reference(run, (TensorType(values.shape, dtype),))


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(size=N)


@pytest.fixture(scope="module")
def exact(values: np.ndarray) -> WorkloadReference:
    return reference(values, DType.F32)


def test_rounded_reference_passes_in_every_float_type(values: np.ndarray) -> None:
    for dtype in (DType.F64, DType.F32, DType.F16, DType.BF16):
        result = check((values.astype(dtype.numpy),), reference(values, dtype))
        assert result.ok, result.message
        assert result.max_rel_error <= dtype.eps


def test_one_wrong_element_in_a_hundred_thousand_fails(
    values: np.ndarray, exact: WorkloadReference
) -> None:
    out = values.astype(np.float32)
    out[123] += 1e-3
    result = check((out,), exact)
    assert not result.ok and "1 of 100000 elements differ, first at [123]" in result.message


def test_small_error_everywhere_fails_by_its_norm(values: np.ndarray) -> None:
    held = reference(values, DType.F32, ulps=100.0)
    assert check(((values * (1 + 1e-5)).astype(np.float32),), held).ok
    near = 0.95 * held.outputs[0].tolerance * np.sign(values)
    result = check(((values + near).astype(np.float32),), held)
    assert not result.ok and "relative error" in result.message


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_where_the_reference_is_finite_fails(
    values: np.ndarray, exact: WorkloadReference, bad: float
) -> None:
    out = values.astype(np.float32)
    out[-1] = bad
    result = check((out,), exact)
    assert not result.ok and "non-finite element at [99999]" in result.message


def test_equal_non_finite_values_pass_and_others_do_not() -> None:
    wanted = np.array([np.nan, np.inf, -np.inf, 1.0, 1e300])
    held = reference(wanted, DType.F32)  # 1e300 is infinite as f32
    good = np.array([np.nan, np.inf, -np.inf, 1.0, np.inf], np.float32)
    assert check((good,), held).ok
    for position, value in ((0, 0.0), (1, 3.0), (1, -np.inf), (2, np.nan), (4, 1e30)):
        bad = good.copy()
        bad[position] = value
        assert not check((bad,), held).ok


def test_unwritten_elements_fail_in_every_dtype() -> None:
    for dtype in DType:
        wanted = np.ones(50, dtype.reference)
        out = wanted.astype(dtype.numpy)
        held = reference(wanted, dtype)
        assert check((out,), held).ok
        poison(out[40:])
        result = check((out,), held)
        assert not result.ok, dtype


def test_integers_are_exact() -> None:
    wanted = np.arange(1000)
    held = reference(wanted, DType.I64)
    assert check((wanted.copy(),), held).ok
    out = wanted.copy()
    out[7] += 1
    assert (
        check((out,), held).message
        == "output 0: 1 of 1000 elements differ, first at [7]: 8 instead of 7"
    )


def test_wrong_type_is_said(exact: WorkloadReference) -> None:
    assert "not f32[100000]" in check((np.zeros(N),), exact).message


def test_ill_conditioned_program_passes_in_f32_and_fails_when_wrong() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (N,), DType.F32)
    one = builder.constant(1.0, DType.F32, (N,))
    # (exp(x) - 1 - x) / x^2 near 0 loses most digits.
    top = builder.add("sub", builder.add("sub", builder.add("exp", x), one), x)
    graph = builder.build([builder.add("div", top, builder.add("mul", x, x))])
    inputs = (np.random.default_rng(0).uniform(-0.05, 0.05, N).astype(np.float32),)
    held = reference_of(graph, inputs)
    x32 = inputs[0]
    good = (np.exp(x32) - np.float32(1) - x32) / (x32 * x32)
    result = check((good,), held)
    assert result.ok, result.message
    easy = int(np.argmax(np.abs(x32)))
    bad = good.copy()
    bad[easy] *= np.float32(1.1)
    assert not check((bad,), held).ok


def test_equal_errors_of_narrow_results_have_room() -> None:
    """1 - x is 1 in bf16, so that 400 of them are 1 and not 0.77: no chance, and no fault."""
    builder = GraphBuilder()
    x = builder.input("x", (400,), DType.BF16)
    one = builder.constant(1.0, DType.BF16, (400,))
    near = builder.add("sub", one, x)
    graph = builder.build([builder.add("reduce_prod", near, axes=(0,))])
    held = reference_of(graph, (np.full(400, 0.00065),))
    bfloat = DType.BF16.numpy
    for value, ok in ((0.77, True), (1.0, True), (0.0, False), (2.0, False)):
        assert check((np.array(value, bfloat),), held).ok == ok, value


def test_equal_errors_of_iterations_have_room() -> None:
    """Every iteration adds the same number to a sum, and most round to the same side."""
    steps = 20_000

    def program(x: TracedArray) -> TracedArray:
        return xp.fori_loop(steps, lambda _, total: total + x, x)

    graph = trace(program, spec((1,)))
    x = np.full(1, 0.1, np.float32)
    held = reference_of(graph, (x,))
    total = x.copy()
    for _ in range(steps):
        total = total + x
    lost = abs(float(total[0]) - (steps + 1) * float(x[0]))
    assert lost > 0.9 * np.sqrt(steps) * 2**-23 * total[0]  # more than errors by chance add up to
    assert check((total,), held).ok
    assert not check((total * np.float32(1.001),), held).ok


def test_threshold_program_may_have_few_outliers_only() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (N,), DType.F32)
    steps = builder.add("mul", x, builder.constant(1000.0, DType.F32, (N,)))
    graph = builder.build([builder.add("floor", steps)])
    draw = np.random.default_rng(0)
    near = draw.integers(1, 1000, N) / 1000  # right at the jumps
    x32 = np.where(draw.random(N) < 0.001, near, draw.random(N)).astype(np.float32)
    held = reference_of(graph, (x32,))
    assert held.outputs[0].outliers > 0
    assert check((np.floor(x32 * np.float32(1000)),), held).ok
    bad = np.floor(x32 * np.float32(1000))
    bad[::50] += 1
    assert not check((bad,), held).ok
    unwritten = np.floor(x32 * np.float32(1000))
    unwritten[int(np.argmax(held.outputs[0].tolerance))] = np.nan
    assert not check((unwritten,), held).ok


def test_long_sums_have_room_and_no_more() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (4, N), DType.F32)
    graph = builder.build([builder.add("reduce_sum", x, axes=(1,))])
    x32 = np.random.default_rng(0).normal(size=(4, N)).astype(np.float32)
    held = reference_of(graph, (x32,))
    sequential = np.cumsum(x32, axis=1, dtype=np.float32)[:, -1]
    assert check((sequential,), held).ok
    missing = x32.astype(np.float64).sum(1) - x32[:, 5]
    assert not check((missing.astype(np.float32),), held).ok


def test_bfloat16_and_empty_outputs() -> None:
    empty = reference(np.zeros((0, 3)), DType.BF16)
    assert check((np.zeros((0, 3), ml_dtypes.bfloat16),), empty).ok
    zeros = reference(np.zeros(8), DType.F32)
    assert check((np.zeros(8, np.float32),), zeros).ok
    assert not check((np.full(8, 1e-9, np.float32),), zeros).ok


@pytest.mark.parametrize("seed", [0, 1])
def test_simulation_with_resets_passes_under_other_rounding_and_fails_when_wrong(seed: int) -> None:
    graph = zoo_graph("cartpole_norng", "small")
    inputs = random_inputs(graph, seed)
    held = reference_of(graph, inputs)
    for other in (100, 101):
        noisy = evaluate(graph, inputs, noise=Noise(other))
        outputs = [a.astype(t.dtype.numpy) for a, t in zip(noisy, graph.output_types, strict=True)]
        result = check(outputs, held)
        assert result.ok, result.message
    outputs[0].reshape(-1)[::10] += 0.01
    assert not check(outputs, held).ok


def test_a_product_of_inputs_is_computed_once_for_all_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = GraphBuilder()
    x = builder.input("x", (4, 4), "f32")
    roles = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    first = builder.add("dot_general", builder.add("transpose", x, perm=(1, 0)), x, **roles)
    graph = canonical(builder.build([builder.add("dot_general", first, x, **roles)]))
    (data,) = random_inputs(graph, 0)
    runs, products = Runs(graph, (data,)), list[np.ndarray]()
    matmul = np.matmul

    def counted(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        products.append(a)
        return np.asarray(matmul(a, b))

    monkeypatch.setattr(np, "matmul", counted)
    noisy = [runs(Noise(seed))[0] for seed in (1, 2, 1)]
    assert len(products) == 1 + 3 + 2, "what noise has reached in each run, sizes of sums once"
    assert np.array_equal(noisy[0], noisy[2]) and not np.array_equal(noisy[0], noisy[1])
    exact = evaluate(graph, (data,))[0]
    assert np.array_equal(runs()[0], exact) and np.allclose(noisy[0], exact, rtol=1e-4)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)])
def test_arrays_are_laid_out_part_by_part(order: tuple[int, ...]) -> None:
    moved = np.arange(128 * 96 * 64, dtype=np.float64).reshape(128, 96, 64).transpose(order)
    assert moved.nbytes > PART_BYTES
    found = laid_out(moved)
    assert found.flags.c_contiguous and np.array_equal(found, moved)


def test_noise_reaches_every_element_of_any_layout() -> None:
    data = np.ones((300, 200, 3))
    for array in (data, data.transpose(2, 0, 1), data[:, ::2], np.broadcast_to(1.0, (300, 400))):
        noisy = Noise(1)(array, 1e-3)
        assert noisy.shape == array.shape and np.all(noisy != 1.0)
        assert np.all(np.abs(noisy - 1.0) <= 2e-3 * (1 + 1e-9))


def test_a_check_of_what_is_mostly_nan_says_that_it_says_nothing() -> None:
    graph = trace(lambda x: {"y": xp.sqrt(x), "z": x + 1.0}, spec((4, 10)))
    inputs = (np.linspace(-3, 1, 40, dtype=np.float32).reshape(4, 10),)
    held = reference_of(graph, inputs)
    assert held.blind == "not verifiable: 75% of output 0 is NaN in the reference"
    with np.errstate(all="ignore"):
        outputs = [np.sqrt(inputs[0]), inputs[0] + np.float32(1)]
    found = check(outputs, held)
    assert found.ok and found.blind == held.blind
    few = reference_of(graph, (np.abs(inputs[0]),))
    assert not few.blind and not check(outputs, few).ok


def test_large_elements_lend_no_room_to_small_ones() -> None:
    """Half of the elements replaced by -7, where the others are large."""
    graph = trace(lambda x: xp.tanh(x) * x, spec((2, 500)))
    large = np.random.default_rng(0).uniform(1e7, 1e8, 500)
    x = np.stack([large, np.random.default_rng(1).uniform(0.1, 2.0, 500)]).astype(np.float32)
    held = reference_of(graph, (x,))
    right = (np.tanh(x) * x).astype(np.float32)
    assert check((right,), held).ok
    right[1] = -7.0
    assert not check((right,), held).ok


def test_one_output_lends_no_room_to_another() -> None:
    """A long sum has room for its order; what does not read it has none of that."""
    graph = trace(lambda x: {"s": xp.sum(x), "y": x * 3.0}, spec((1 << 18,)))
    x = np.random.default_rng(0).uniform(0.5, 1.0, 1 << 18).astype(np.float32)
    held = reference_of(graph, (x,))
    in_order = np.cumsum(x, dtype=np.float32)[-1]
    assert check((np.asarray(in_order), x * np.float32(3)), held).ok
    off = x * np.float32(3)
    off[7] *= np.float32(1 + 2e-5)
    assert not check((np.asarray(in_order), off), held).ok


def test_what_a_clip_hides_has_room_all_the_same() -> None:
    """Products near 0 whose sign rounding decides, cut off below 0: they stand still in many noisy
    runs, and are right all the same."""
    n, terms = 2000, 300
    graph = trace(
        lambda a, b: xp.maximum(xp.sum(a * b, axis=1), 0.0), spec((n, terms)), spec((n, terms))
    )
    draw = np.random.default_rng(0)
    a = draw.normal(size=(n, terms)).astype(np.float32)
    b = draw.normal(size=(n, terms)).astype(np.float32)
    # The last term takes nearly all of the others away.
    a[:, -1] = 1.0
    b[:, -1] = -np.sum(a[:, :-1].astype(np.float64) * b[:, :-1], axis=1)
    held = reference_of(graph, (a, b))
    for order in range(5):
        at = np.random.default_rng(order).permutation(terms)
        summed = np.cumsum((a * b)[:, at], axis=1, dtype=np.float32)[:, -1]
        result = check((np.maximum(summed, np.float32(0)),), held)
        assert result.ok, result.message


def test_a_chaotic_program_is_not_verifiable() -> None:
    def logistic(x: TracedArray) -> TracedArray:
        for _ in range(80):
            x = 3.99 * x * (1.0 - x)
        return x

    graph = trace(logistic, spec((1000,)))
    x = np.random.default_rng(0).uniform(0.1, 0.9, 1000).astype(np.float32)
    held = reference_of(graph, (x,))
    assert held.blind.startswith("not verifiable: rounding errors move ")
    assert check((np.full(1000, 0.5, np.float32),), held).blind == held.blind


@pytest.mark.parametrize("op", ["fft", "ifft"])
def test_transforms_have_room_of_their_rows_only(op: str) -> None:
    b = GraphBuilder()
    graph = canonical(b.build([b.add(op, b.input("x", (2, 4096, 2), DType.F32), axis=1)]))
    draw = np.random.default_rng(0)
    x = (draw.normal(size=(2, 4096, 2)) * np.array([1e6, 1.0])[:, None, None]).astype(np.float32)
    held = reference_of(graph, (x,))
    y = held.outputs[0].expected.reshape(2, 4096, 2).astype(np.float32)
    assert check((y,), held).ok
    y[1, 5] = -7.0
    assert not check((y,), held).ok
