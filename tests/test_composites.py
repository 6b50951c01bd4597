"""Composites against what NumPy, SciPy and the definitions say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from autofuse.graph import GraphBuilder, Value, evaluate
from autofuse.graph import composites as c
from autofuse.ops import DType, GraphError

F64 = DType.F64
RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5))


def run(fn: Callable[..., Value], *arrays: np.ndarray, dtype: DType = F64) -> np.ndarray:
    b = GraphBuilder()
    inputs = [b.input(f"x{i}", a.shape, dtype) for i, a in enumerate(arrays)]
    return evaluate(b.build([fn(b, *inputs)]), arrays)[0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(axis: int) -> None:
    found = run(lambda b, x: c.softmax(b, x, axis), X)
    np.testing.assert_allclose(found, special.softmax(X, axis))
    found = run(lambda b, x: c.log_softmax(b, x, axis), X * 300)
    np.testing.assert_allclose(found, special.log_softmax(X * 300, axis), atol=1e-9)


@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), (-1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_mean_and_var(axes: int | tuple[int, ...] | None, keepdims: bool) -> None:
    found = run(lambda b, x: c.mean(b, x, axes, keepdims), X)
    np.testing.assert_allclose(found, X.mean(axes, keepdims=keepdims), atol=1e-12)
    found = run(lambda b, x: c.var(b, x, axes, keepdims, 1), X)
    np.testing.assert_allclose(found, X.var(axes, keepdims=keepdims, ddof=1))


def test_norms() -> None:
    scale, bias = RNG.normal(size=5), RNG.normal(size=5)
    centred = X - X.mean(-1, keepdims=True)
    normed = centred / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run(c.layer_norm, X), normed)
    np.testing.assert_allclose(run(c.layer_norm, X, scale, bias), normed * scale + bias)
    power = X / np.sqrt((X**2).mean(-1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(run(c.rms_norm, X, scale), power * scale)


def test_activations() -> None:
    exact = X * special.ndtr(X)
    np.testing.assert_allclose(run(lambda b, x: c.gelu(b, x, approximate=False), X), exact)
    np.testing.assert_allclose(run(c.gelu, X), exact, atol=1e-3)
    np.testing.assert_allclose(run(c.silu, X), X * special.expit(X))
    np.testing.assert_allclose(run(c.relu, X), np.maximum(X, 0))
    np.testing.assert_allclose(run(c.square, X), X**2)


@pytest.mark.parametrize(
    ("source", "target"),
    [((), (2, 3)), ((3,), (2, 3)), ((1,), (4,)), ((2, 1), (2, 3)), ((1, 3, 1), (4, 2, 3, 5)),
     ((2, 3), (2, 3)), ((1, 1), (1, 1, 4))],
)  # fmt: skip
def test_broadcast_to(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    x = RNG.normal(size=source)
    found = run(lambda b, v: c.broadcast_to(b, v, target), x)
    np.testing.assert_array_equal(found, np.broadcast_to(x, target))


@pytest.mark.parametrize(
    ("x", "y"),
    [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (2, 4, 5)),
     ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)),
     ((6, 1, 3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)), ((7, 2, 3, 4), (4, 5))],
)  # fmt: skip
def test_matmul(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    a, b = RNG.normal(size=x), RNG.normal(size=y)
    np.testing.assert_allclose(run(c.matmul, a, b), a @ b, atol=1e-12)


def test_one_hot_and_where() -> None:
    b = GraphBuilder()
    v, x = b.input("v", (3,), DType.I8), b.input("x", (3, 1), DType.F32)
    hot = c.one_hot(b, v, 4)
    picked = c.where(b, b.add("ne", hot, c.full_like(b, hot, 0)), x, c.full(b, 9, DType.F32, ()))
    labels, values = np.array([2, 0, 7], np.int8), np.array([[1.0], [2.0], [3.0]])
    found, chosen = evaluate(b.build([hot, picked]), [labels, values])
    wanted = (labels[:, None] == np.arange(4)).astype(float)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(chosen, np.where(wanted, values, 9.0))


def draw(fn: Callable[..., Value], shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    b = GraphBuilder()
    key, stream = b.input("key", (2,), DType.U32), b.input("stream", (), DType.U32)
    g = b.build([fn(b, key, stream, shape, dtype)])
    return evaluate(g, [np.array([7, 11], np.uint32), np.array(3, np.uint32)])[0]


def test_random_numbers() -> None:
    u = draw(c.uniform, (101, 41), DType.F32)
    assert u.min() >= 0 and u.max() < 1 and abs(u.mean() - 0.5) < 0.02
    assert len(np.unique(u)) > 4_100
    np.testing.assert_array_equal(u * 2**24, np.floor(u * 2**24))
    z = draw(c.normal, (101, 41), DType.F32)
    assert z.shape == (101, 41) and np.isfinite(z).all()
    assert abs(z.mean()) < 0.06 and abs(z.std() - 1) < 0.05
    assert draw(c.normal, (), DType.F64).shape == ()


def test_bad_arguments_are_refused() -> None:
    b = GraphBuilder()
    x, n = b.input("x", (2, 3), F64), b.input("n", (2, 3), DType.I32)
    key, stream = b.input("key", (2,), DType.U32), b.input("stream", (), DType.U32)
    with pytest.raises(GraphError, match="axis 2 is out of range"):
        c.softmax(b, x, 2)
    with pytest.raises(GraphError, match="repeat"):
        c.mean(b, x, (0, -2))
    with pytest.raises(GraphError, match="does not broadcast to"):
        c.broadcast_to(b, x, (2, 4))
    with pytest.raises(GraphError, match="do not broadcast"):
        c.binary(b, "add", x, b.input("y", (4,), F64))
    with pytest.raises(GraphError, match="the result is a float, not i32"):
        c.mean(b, n)
    with pytest.raises(GraphError, match="divides by 0"):
        c.var(b, x, 0, correction=2)
    with pytest.raises(GraphError, match="the result is a float, not u32"):
        c.uniform(b, key, stream, (4,), DType.U32)
    with pytest.raises(GraphError, match="rank 1 or more"):
        c.matmul(b, stream, key)
