"""Composites against what NumPy, SciPy and the definitions say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

from autofuse.graph import GraphWriter, Value, evaluate
from autofuse.graph.composites import activations, moves, random, windows
from autofuse.graph.composites import layers as c
from autofuse.graph.composites import math as m
from autofuse.ops import DType, GraphError
from autofuse.ops.convolution import conv_attrs

F64 = DType.F64
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))
SMALL = np.linspace(-0.9, 0.9, 12).reshape(3, 4)


def run(fn: Callable[..., Value], *arrays: np.ndarray, dtype: DType = F64) -> np.ndarray:
    w = GraphWriter()
    inputs = [w.input(f"x{i}", a.shape, dtype) for i, a in enumerate(arrays)]
    return evaluate(w.build([fn(w, *inputs)]), arrays)[0]


def ops_of(fn: Callable[..., Value], shape: tuple[int, ...], dtype: DType) -> list[str]:
    w = GraphWriter()
    return [node.op for node in w.build([fn(w, w.input("x", shape, dtype))]).nodes]


# Statistics and normalisations


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
    found = run(lambda w, x: activations.softmax(w, x, axis), X)
    np.testing.assert_allclose(found, special.softmax(X, axis))
    found = run(lambda w, x: activations.log_softmax(w, x, axis), X * 300)
    np.testing.assert_allclose(found, special.log_softmax(X * 300, axis), atol=1e-9)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), (-1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mean_var_and_logsumexp(axes: int | tuple[int, ...] | None, keepdims: bool) -> None:
    found = run(lambda w, x: c.mean(w, x, axes, keepdims), X)
    np.testing.assert_allclose(found, X.mean(axes, keepdims=keepdims), atol=1e-12)
    found = run(lambda w, x: c.var(w, x, axes, keepdims, 1), X)
    np.testing.assert_allclose(found, X.var(axes, keepdims=keepdims, ddof=1))
    found = run(lambda w, x: c.std(w, x, axes, keepdims), X)
    np.testing.assert_allclose(found, X.std(axes, keepdims=keepdims))
    found = run(lambda w, x: c.logsumexp(w, x, axes, keepdims), X)
    np.testing.assert_allclose(found, special.logsumexp(X, axes, keepdims=keepdims))


def test_logsumexp_of_infinities() -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, 0.0], [-np.inf, 0.0], [1.0, -1.0]])
    found = run(lambda w, v: c.logsumexp(w, v, 1), x)
    np.testing.assert_allclose(found, special.logsumexp(x, 1))


@pytest.mark.parametrize("reverse", [False, True])
def test_cumulative_sum(reverse: bool) -> None:
    found = run(lambda w, x: c.cumulative_sum(w, x, -2, reverse), X)
    wanted = np.flip(np.flip(X, 1).cumsum(1), 1) if reverse else X.cumsum(1)
    np.testing.assert_allclose(found, wanted)


def test_norms() -> None:
    scale, bias = RNG.normal(size=5), RNG.normal(size=5)
    centred = X - X.mean(-1, keepdims=True)
    normed = centred / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run(c.layer_norm, X), normed)
    np.testing.assert_allclose(run(c.layer_norm, X, scale, bias), normed * scale + bias)
    power = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(run(c.rms_norm, X, scale), power * scale)


def test_batch_norm_of_running_statistics() -> None:
    mean, var, scale, bias = (RNG.uniform(0.5, 1.5, 4) for _ in range(4))
    wanted = (X - mean[:, None]) / np.sqrt(var[:, None] + 1e-5) * scale[:, None] + bias[:, None]
    np.testing.assert_allclose(run(c.batch_norm, X, mean, var, scale, bias), wanted)
    plain = (X - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    np.testing.assert_allclose(run(c.batch_norm, X, mean, var), plain)


@pytest.mark.parametrize("fn", [c.mean, activations.softmax, c.layer_norm, c.logsumexp, c.var])
def test_half_floats_are_added_up_in_f32(fn: Callable[..., Value]) -> None:
    w = GraphWriter()
    graph = w.build([fn(w, w.input("x", (4, 5), DType.F16))])
    sums = [node for node in graph.nodes if node.op == "reduce_sum"]
    assert sums and all(node.types[0].dtype is DType.F32 for node in sums)
    assert graph.output_types[0].dtype is DType.F16


def test_kept_axes_leave_no_reshapes() -> None:
    for fn in (activations.softmax, c.layer_norm, c.rms_norm, activations.log_softmax):
        assert "reshape" not in ops_of(fn, (4, 5), DType.F32)


# Activations and elementwise functions


def test_activations() -> None:
    exact = X * special.ndtr(X)
    np.testing.assert_allclose(
        run(lambda w, x: activations.gelu(w, x, approximate=False), X), exact
    )
    np.testing.assert_allclose(run(activations.gelu, X), exact, atol=1e-3)
    np.testing.assert_allclose(run(activations.silu, X), X * special.expit(X))
    np.testing.assert_allclose(run(activations.relu, X), np.maximum(X, 0))


UNARY: dict[str, tuple[Callable[..., Value], Any, np.ndarray]] = {
    "cbrt": (m.cbrt, np.cbrt, X),
    "exp2": (m.exp2, np.exp2, X),
    "log2": (m.log2, np.log2, SMALL**2),
    "log10": (m.log10, np.log10, SMALL**2),
    "asinh": (m.asinh, np.arcsinh, X * 9),
    "acosh": (m.acosh, np.arccosh, 1 + X**2),
    "atanh": (m.atanh, np.arctanh, SMALL),
    "erfc": (m.erfc, special.erfc, X),
    "erf_inv": (m.erf_inv, special.erfinv, SMALL),
    "trunc": (m.trunc, np.trunc, X * 3),
    "isinf": (m.isinf, np.isinf, np.array([1.0, np.inf, -np.inf, np.nan])),
    "half away": (
        m.round_half_away,
        lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5),
        np.array([-2.5, -1.2, -0.5, 0.5, 1.5, 1.7]),
    ),
    "power 3": (lambda w, x: m.power(w, x, 3), lambda x: x**3, X),
    "power 0": (lambda w, x: m.power(w, x, 0), np.ones_like, X),
    "power -2": (lambda w, x: m.power(w, x, -2.0), lambda x: x**-2, X),
    "power 0.5": (lambda w, x: m.power(w, x, 0.5), np.sqrt, SMALL**2),
    "power 1.7": (lambda w, x: m.power(w, x, 1.7), lambda x: x**1.7, SMALL**2),
    "clip": (lambda w, x: m.clip(w, x, -0.5, 0.7), lambda x: np.clip(x, -0.5, 0.7), X),
    "clip above": (lambda w, x: m.clip(w, x, None, 0.7), lambda x: np.minimum(x, 0.7), X),
    "clip below": (lambda w, x: m.clip(w, x, 0.1, None), lambda x: np.maximum(x, 0.1), X),
}


@pytest.mark.parametrize("name", UNARY)
def test_elementwise(name: str) -> None:
    fn, plain, data = UNARY[name]
    np.testing.assert_allclose(run(fn, data), plain(data), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("fn", "plain"),
    [(m.hypot, np.hypot), (m.logaddexp, np.logaddexp), (m.remainder, np.remainder),
     (m.floor_divide, np.floor_divide)],
)  # fmt: skip
def test_elementwise_of_two_broadcasts(fn: Callable[..., Value], plain: Any) -> None:
    y = RNG.normal(size=5)
    np.testing.assert_allclose(run(fn, X, y), plain(X, y), rtol=1e-9, atol=1e-12)


def test_powers_of_integers() -> None:
    w = GraphWriter()
    x = w.input("x", (3,), DType.I32)
    (found,) = evaluate(w.build([m.power(w, x, 3)]), [np.array([-2, 0, 5], np.int32)])
    assert found.tolist() == [-8, 0, 125]
    for exponent in (-1, 0.5):
        with pytest.raises(GraphError, match="whole exponent that is not negative"):
            m.power(w, x, exponent)


@pytest.mark.parametrize("dtype", [DType.I8, DType.I64, DType.U8])
def test_powers_of_integers_that_are_not_known(dtype: DType) -> None:
    ends = np.iinfo(dtype.numpy)
    numbers = {n for n in (-7, -2, -1, 0, 1, 2, 3, 10, 62, 65) if n >= ends.min}
    grid = np.meshgrid(*[np.array([*numbers, ends.min, ends.max], dtype.numpy)] * 2)
    found = run(m.whole_power, *grid, dtype=dtype)
    grid_flat = [g.flat for g in grid]
    wanted = [_wrapped_power(int(x), int(y), dtype) for x, y in zip(*grid_flat, strict=True)]
    assert found.ravel().tolist() == wanted


def _wrapped_power(x: int, y: int, dtype: DType) -> int:
    if y < 0 and abs(x) != 1:
        return 0
    period = 1 << 8 * dtype.itemsize
    unsigned = pow(x, abs(y), period)
    return unsigned - period if unsigned > int(np.iinfo(dtype.numpy).max) else unsigned


def test_choose_takes_the_nearest_case() -> None:
    w = GraphWriter()
    which = w.input("i", (4,), DType.I32)
    cases = tuple(w.full(float(i), (4,), F64) for i in range(3))
    graph = w.build([m.choose(w, which, cases)])
    assert evaluate(graph, [np.array([-1, 1, 2, 9], np.int32)])[0].tolist() == [0.0, 1.0, 2.0, 2.0]


def test_one_hot() -> None:
    w = GraphWriter()
    graph = w.build([c.one_hot(w, w.input("v", (3,), DType.I8), 4)])
    labels = np.array([2, 0, 7], np.int8)
    (found,) = evaluate(graph, [labels])
    np.testing.assert_array_equal(found, (labels[:, None] == np.arange(4)).astype(float))


# Products


@pytest.mark.parametrize(
    ("x", "y"),
    [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (2, 4, 5)),
     ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
     ((6, 1, 3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)), ((7, 2, 3, 4), (4, 5))],
)  # fmt: skip
def test_matmul(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = RNG.normal(size=x), RNG.normal(size=y)
    np.testing.assert_allclose(run(c.matmul, a, b), a @ b, atol=1e-12)


# Moves

MOVES: dict[str, tuple[Callable[..., Value], Any]] = {
    "stack": (lambda w, x: moves.stack(w, [x, w.map("neg", x)], 1), lambda x: np.stack([x, -x], 1)),
    "split": (lambda w, x: moves.split(w, x, 2, (2, 1, 2))[1], lambda x: x[:, :, 2:3]),
    "tile": (lambda w, x: moves.tile(w, x, (2, 3)), lambda x: np.tile(x, (2, 3))),
    "tile more": (lambda w, x: moves.tile(w, x, (2, 1, 1, 2)), lambda x: np.tile(x, (2, 1, 1, 2))),
    "roll": (lambda w, x: moves.roll(w, x, -2, 1), lambda x: np.roll(x, -2, 1)),
    "roll whole": (lambda w, x: moves.roll(w, x, 8, 1), lambda x: x),
    "lower": (lambda w, x: moves.triangle(w, x, 1, True), lambda x: np.tril(x, 1)),
    "upper": (lambda w, x: moves.triangle(w, x, 0, False), np.triu),
    "eye": (lambda w, x: w.mul(x, moves.eye(w, 4, 5, 1, F64)), lambda x: x * np.eye(4, 5, 1)),
    "pad": (
        lambda w, x: moves.pad(w, x, w.constant(3.0, F64), (1, 0, 0), (0, 0, 2)),
        lambda x: np.pad(x, ((1, 0), (0, 0), (0, 2)), constant_values=3.0),
    ),
    "pad nothing": (
        lambda w, x: moves.pad(w, x, w.constant(3.0, F64), (0, 0, 0), (0, 0, 0)), lambda x: x,
    ),
    "cut": (
        lambda w, x: moves.pad(w, x, w.constant(3.0, F64), (-1, 0, 0), (0, -1, 0)),
        lambda x: x[1:, :-1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str) -> None:
    fn, plain = MOVES[name]
    np.testing.assert_array_equal(run(fn, X), plain(X))


def test_padding_between_neighbours() -> None:
    x = np.arange(3.0)
    found = run(lambda w, v: moves.pad(w, v, w.constant(9.0, F64), (1,), (0,), (2,)), x)
    assert found.tolist() == [9.0, 0.0, 9.0, 9.0, 1.0, 9.0, 9.0, 2.0]


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I32, DType.I64])
@pytest.mark.parametrize("start", [-3, 0, 120])
def test_windows_at_computed_places(dtype: DType, start: int) -> None:
    """A narrow start index meets an extent that it cannot hold."""
    if start < 0 and not dtype.is_signed:
        start = 7
    w, data = GraphWriter(), np.arange(400.0)
    x, at = w.input("x", (400,), F64), w.input("at", (), dtype)
    window = moves.slice_at(w, x, [at], (300,))
    ones = w.full(-1.0, (300,), F64)
    written = moves.overwrite(w, x, ones, [moves.start_within(w, at, 100)])
    found, changed = evaluate(w.build([window, written]), [data, np.asarray(start, dtype.numpy)])
    first = min(max(start, 0), 100)
    np.testing.assert_array_equal(found, data[first : first + 300])
    wanted = data.copy()
    wanted[first : first + 300] = -1
    np.testing.assert_array_equal(changed, wanted)


# Random numbers


def draw(fn: Callable[..., Value], shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    w = GraphWriter()
    key, stream = w.input("key", (2,), DType.U32), w.input("stream", (), DType.U32)
    g = w.build([fn(w, key, stream, shape, dtype)])
    return evaluate(g, [np.array([7, 11], np.uint32), np.array(3, np.uint32)])[0]


def test_random_numbers() -> None:
    u = draw(random.uniform, (101, 41), DType.F32)
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert len(np.unique(u)) > 4_100
    np.testing.assert_array_equal(u * 2**24, np.floor(u * 2**24))
    z = draw(random.normal, (101, 41), DType.F32)
    assert z.shape == (101, 41) and np.isfinite(z).all()
    assert abs(z.mean()) < 0.06 and abs(z.std() - 1) < 0.05
    assert draw(random.normal, (), DType.F64).shape == ()


def test_bad_arguments_are_refused() -> None:
    w = GraphWriter()
    x, n = w.input("x", (2, 3), F64), w.input("n", (2, 3), DType.I32)
    key, stream = w.input("key", (2,), DType.U32), w.input("stream", (), DType.U32)
    with pytest.raises(GraphError, match="axis 2 is out of range"):
        activations.softmax(w, x, 2)
    with pytest.raises(GraphError, match="repeat"):
        c.mean(w, x, (0, -2))
    with pytest.raises(GraphError, match="the result is a float, not i32"):
        c.mean(w, n)
    with pytest.raises(GraphError, match="divides by 0"):
        c.var(w, x, 0, correction=2)
    with pytest.raises(GraphError, match="the result is a float, not u32"):
        random.uniform(w, key, stream, (4,), DType.U32)
    with pytest.raises(GraphError, match="a random key is"):
        random.uniform(w, stream, stream, (4,))
    with pytest.raises(GraphError, match="rank 1 or more"):
        c.matmul(w, stream, key)
    with pytest.raises(GraphError, match="inner extents differ"):
        c.matmul(w, x, x)


def test_a_large_product_that_no_library_reads_as_it_lies_moves_its_operands() -> None:
    """The batch axis is the last of both: `ikc,jkc->cij`."""

    def product(w: GraphWriter, x: Value, y: Value) -> Value:
        return c.dot(w, x, y, ((1,), (1,)), ((2,), (2,)))

    x, y = RNG.normal(size=(70, 80, 3)), RNG.normal(size=(90, 80, 3))
    np.testing.assert_allclose(run(product, x, y), np.einsum("ikc,jkc->cij", x, y))
    w = GraphWriter()
    large = [w.input("x", x.shape, F64), w.input("y", y.shape, F64)]
    (moved,) = (n for n in w.build([product(w, *large)]).nodes if n.op == "dot_general")
    assert dict(moved.attrs)["lhs_batch"] == (0,) == dict(moved.attrs)["rhs_batch"]
    w = GraphWriter()
    small = [w.input("x", (4, 5, 3), F64), w.input("y", (6, 5, 3), F64)]
    assert [n.op for n in w.build([product(w, *small)]).nodes].count("transpose") == 0


@pytest.mark.parametrize("sizes", [(2,), (3, 2), (1, 2, 2)])
def test_points_become_blocks(sizes: tuple[int, ...]) -> None:
    """As by zeros between points, which are not there."""
    rng, count = np.random.default_rng(1), len(sizes)
    image = (4, 3, 5)[:count]
    x, kernel = rng.normal(size=(2, 3, *image)), rng.normal(size=(3, 4, *sizes))
    whole = [a * b for a, b in zip(image, sizes, strict=True)]
    attrs = conv_attrs(count, stride=sizes)
    wanted = run(lambda w, x, k: windows.conv_input_grad(w, x, k, (2, 4, *whole), attrs), x, kernel)
    np.testing.assert_allclose(run(windows.conv_to_blocks, x, kernel), wanted, rtol=1e-12)
    w = GraphWriter()
    blocks = windows.conv_to_blocks(w, w.input("x", x.shape, F64), w.input("k", kernel.shape, F64))
    made = [node for node in w.build([blocks]).nodes if node.op == "conv"]
    assert all(set(dict(node.attrs)["lhs_dilation"]) == {1} for node in made)
