"""Convolutions and windows from jax compute what jax computes, and so do their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.composites.pooling import PoolSpec, mean_pool, mean_pool_grad
from autofuse.graph.composites.windows import (
    attrs_of,
    conv,
    conv_input_grad,
    conv_kernel_grad,
    extremum_windows_grad,
)
from autofuse.graph.reference import evaluate
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from tests.support.jax_check import check

RNG = np.random.default_rng(3)


def drawn(*shape: int, dtype: Any = jnp.float32) -> jax.Array:
    return jnp.asarray(RNG.uniform(-1, 1, shape), dtype)


LAST = ("NHWC", "HWIO", "NHWC")
# Operand shapes, then the arguments of lax.conv_general_dilated.
CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 7), (4, 3, 3), {"window_strides": (1,), "padding": [(0, 0)]}),
    "same": ((2, 3, 8, 7), (4, 3, 3, 2), {"window_strides": (2, 1), "padding": "SAME"}),
    "dilated": (
        (1, 2, 9, 9), (3, 2, 3, 3),
        {"window_strides": (2, 1), "padding": [(2, 1), (0, 3)], "rhs_dilation": (2, 3)},
    ),
    "transposed": (
        (2, 2, 4, 5), (3, 2, 3, 4),
        {"window_strides": (1, 1), "padding": [(2, 1), (1, 3)], "lhs_dilation": (2, 3)},
    ),
    "cut": ((1, 2, 9), (2, 2, 3), {"window_strides": (2,), "padding": [(-1, -2)]}),
    "channels_last": (
        (2, 5, 6, 3), (3, 3, 3, 4),
        {"window_strides": (1, 2), "padding": "SAME", "dimension_numbers": LAST},
    ),
    "mixed_layout": (
        (5, 3, 6, 2), (4, 3, 3, 3),
        {"window_strides": (1, 1), "padding": "VALID",
         "dimension_numbers": ("HCWN", "OIHW", "NWCH")},
    ),
    "grouped": (
        (2, 6, 7), (8, 3, 3),
        {"window_strides": (1,), "padding": [(1, 1)], "feature_group_count": 2},
    ),
    "depthwise": (
        (2, 6, 6, 4), (3, 3, 1, 8),
        {"window_strides": (2, 2), "padding": "SAME", "feature_group_count": 4,
         "dimension_numbers": LAST},
    ),
    "batch_groups": (
        (4, 2, 6), (6, 2, 3),
        {"window_strides": (1,), "padding": [(1, 0)], "batch_group_count": 2},
    ),
    "three_axes": (
        (1, 2, 4, 5, 4), (3, 2, 2, 3, 2),
        {"window_strides": (1, 2, 1), "padding": "VALID"},
    ),
}  # fmt: skip


def program(name: str) -> tuple[Callable[..., Any], jax.Array, jax.Array]:
    lhs, rhs, given = CONVS[name]
    return (
        lambda x, k: lax.conv_general_dilated(x, k, **given),
        drawn(*lhs),
        drawn(*rhs),
    )


@pytest.mark.parametrize("name", CONVS)
def test_conv_and_its_gradients(name: str) -> None:
    """Through jax.vjp, and the composites from the attributes of the op that jax's became."""
    fn, x, k = program(name)

    def both(x: Any, k: Any, g: Any) -> Any:
        y, pull = jax.vjp(fn, x, k)
        return y, pull(g)

    g = drawn(*jax.eval_shape(fn, x, k).shape)
    graph = check(both, x, k, g)
    made, *others = (n for n in graph.nodes if n.op == "conv")
    assert len(others) == 2
    w, attrs = GraphWriter(), dict(made.attrs)
    vx, vk, vg = (w.input(n, a.shape, DType.F32) for n, a in zip("xkg", (x, k, g), strict=True))
    outputs = [
        conv_input_grad(w, vg, vk, x.shape, attrs), conv_kernel_grad(w, vx, vg, k.shape, attrs),
    ]  # fmt: skip
    arrays = [np.asarray(a) for a in (x, k, g)]
    wanted = evaluate(graph, arrays)[1:]
    for ours, theirs in zip(evaluate(w.build(outputs), arrays), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_other_dtypes() -> None:
    def fn(x: Any, k: Any) -> Any:
        return lax.conv(x, k, (1,), "SAME")

    assert str(check(fn, drawn(1, 2, 5), drawn(2, 2, 3)).output_types[0]) == "f32[1,2,5]"
    ints = jnp.arange(10, dtype=jnp.int32).reshape(1, 2, 5), jnp.ones((2, 2, 3), jnp.int32)
    assert str(check(fn, *ints, exact=True).output_types[0]) == "i32[1,2,5]"
    half = [drawn(1, 2, 5, dtype=jnp.bfloat16), drawn(2, 2, 3, dtype=jnp.bfloat16)]
    assert str(check(fn, *half).output_types[0]) == "bf16[1,2,5]"
    wide = check(
        lambda x, k: lax.conv(x, k, (1,), "SAME", preferred_element_type=jnp.float32), *half
    )
    assert str(wide.output_types[0]) == "f32[1,2,5]"
    check(lambda a, b: jnp.convolve(a, b, mode="same"), drawn(9), drawn(4))


X4 = drawn(2, 3, 7, 8)
POOLS: dict[str, Callable[[Any], Any]] = {
    "max": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 3), (1, 1, 2, 1), "VALID"),
    "max_same": lambda x: lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"
    ),
    "min": lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"),
    "sum": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 3, 2), (1, 1, 2, 3), "SAME"),
}


@pytest.mark.parametrize("name", POOLS)
def test_pooling_and_its_vjp(name: str) -> None:
    def both(x: Any, g: Any) -> Any:
        y, pull = jax.vjp(POOLS[name], x)
        return y, pull(g)

    check(both, X4, drawn(*POOLS[name](X4).shape))
    if name != "sum":
        check(lambda x, t: jax.jvp(POOLS[name], (x,), (t,)), X4, X4[::-1])


def test_the_first_of_equal_elements_gets_the_gradient() -> None:
    ties = jnp.array([[[1, 1, 0, -jnp.inf, -jnp.inf, 2, 2, 1]]], jnp.float32)

    def grad(x: Any) -> Any:
        def pool(x: Any) -> Any:
            ends = [(0, 0), (0, 0), (1, 1)]
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2), (1, 1, 2), ends)

        return jax.vjp(pool, x)[1](jnp.arange(1.0, 6.0).reshape(1, 1, 5))

    check(grad, ties, exact=True)


WINDOWS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "prod": (lambda x: lax.reduce_window(x, 1.0, lax.mul, (2, 2), (1, 1), "VALID"), X4[0, 0]),
    "holes": (
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (3, 2), (1, 2), [(2, 1), (0, 1)], (2, 3), (1, 2)
        ),
        X4[0, 0],
    ),
    "ints": (
        lambda x: lax.reduce_window(x, -(2**31), lax.max, (3,), (1,), "SAME"),
        jnp.arange(9, dtype=jnp.int32) * 7 % 5,
    ),
    "cummax": (lambda x: lax.cummax(x, 1), X4[0, 0]),
    "cummin_reverse": (lambda x: lax.cummin(x, 0, reverse=True), X4[0, 0]),
    "cumprod": (lambda x: lax.cumprod(x, 1), X4[0, 0]),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name: str) -> None:
    check(*WINDOWS[name])


def test_windows_that_start_from_any_value() -> None:
    for combine in (lax.mul, lax.add, lax.max, lax.min):
        check(lambda x, c=combine: lax.reduce_window(x, 0.5, c, (2, 2), (1, 1), "VALID"), X4[0, 0])


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + 2 * b, (2, 2), (1, 1), "VALID"),
            "another function than one add, mul, max or min",
        ),
        (
            lambda x: jax.grad(
                lambda y: lax.reduce_window(
                    jnp.tile(y, (20, 20)), -jnp.inf, lax.max, (12, 12), (1, 1), "VALID"
                ).sum()
            )(x),
            "windows of 144 elements are too large to compare",
        ),
    ],
)
def test_refusals(fn: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(FrontendError, match=message):
        from_jax(fn, X4[0, 0])


@pytest.mark.parametrize("count_padding", [False, True])
@pytest.mark.parametrize("padding", [0, 1, "same"])
def test_gradients_of_pooling_are_those_of_jax(padding: Any, count_padding: bool) -> None:
    """Mean windows divide by the elements that they have, or by their size."""
    w = GraphWriter()
    x = w.input("x", X4.shape, DType.F32)
    spec = PoolSpec(3, 2, padding, count_padding=count_padding)
    attrs = attrs_of(spec.over(X4.shape))
    y = mean_pool(w, x, spec)
    g = w.input("g", w.shape(y), DType.F32)
    dx = mean_pool_grad(w, g, spec, X4.shape)
    top = extremum_windows_grad(w, g, x, attrs)
    ends = list(zip(attrs["low"], attrs["high"], strict=True))

    def window(x: Any, start: float, fn: Any) -> Any:
        return lax.reduce_window(x, start, fn, attrs["window"], attrs["stride"], ends)

    def mean(x: Any) -> Any:
        held = 9.0 if count_padding else window(jnp.ones_like(x), 0.0, lax.add)
        return window(x, 0.0, lax.add) / held

    wanted, pull = jax.vjp(mean, X4)
    draw = drawn(*wanted.shape)
    largest = jax.vjp(lambda x: window(x, -jnp.inf, lax.max), X4)[1](draw)
    found = evaluate(w.build([y, dx, top]), [np.asarray(X4), np.asarray(draw)])
    for ours, theirs in zip(found, (wanted, *pull(draw), *largest), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "given", "message"),
    [
        (((1, 2, 5), (2, 2, 3, 3)), {}, "both need batch or out feature"),
        (((1, 2, 5), (2, 3, 3)), {}, "2 features on axis 1, 1 groups of 3 are 3"),
        (((1, 4, 5), (3, 2, 3)), {"groups": 2}, "3 out features in 2 groups"),
        (((3, 2, 5), (4, 2, 3)), {"batch_groups": 2}, "3 images in 2 batch_groups"),
        (((1, 2, 5), (2, 2, 3)), {"stride": 0}, "spatial axis 0 has a stride of 0"),
        (((1, 2, 5), (2, 2, 3)), {"stride": (1, 2)}, "not one number for each of 1 axes"),
        (((1, 2, 5), (2, 2, 3)), {"padding": "half"}, "neither numbers nor 'valid' nor 'same'"),
        (
            ((1, 2, 5), (2, 2, 3)),
            {"padding": [(1, 1)] * 2},
            "not a number or pair for each of 1 axes",
        ),
    ],
)
def test_bad_convolutions(
    shapes: tuple[tuple[int, ...], ...], given: dict[str, Any], message: str
) -> None:
    w = GraphWriter()
    x, k = (w.input(f"x{i}", shape, DType.F32) for i, shape in enumerate(shapes))
    with pytest.raises(Exception, match=message) as caught:
        conv(w, x, k, **given)
    assert type(caught.value).__name__ == "GraphError"
