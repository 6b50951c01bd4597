"""Convolution and pooling in traced Python, their kernels, and what baselines make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import autofuse
from autofuse.cost.work import group_work
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.frontends.errors import TraceError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops import sliding
from autofuse.ops.convolution import conv_attrs
from autofuse.ops.sliding import Sliding, census
from autofuse.ops.spec import spec_of
from autofuse.ops.window_reduction import window_attrs
from autofuse.plan.fusion.legality import check_group
from autofuse.plan.types import Refusal
from tests.support.batching import Case, build, poisoned_run
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.op_cases import LAUNCHES, whole
from tests.support.rule_plans import F32, Ruled

xp = autofuse.xp
RNG = np.random.default_rng(0)
IMAGES, KERNELS = RNG.normal(size=(2, 3, 6, 7)), RNG.normal(size=(4, 3, 3, 3))


def run(fn: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    graph = trace(fn, *(spec(a.shape, "f64") for a in arrays))
    return evaluate(graph, arrays)[0]


def correlated(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """All images with all kernels, without padding."""
    from scipy import signal  # takes long to import

    return np.array(
        [[sum(map(lambda a, b: signal.correlate(a, b, "valid"), n, o)) for o in k] for n in x]
    )


def padded(x: np.ndarray, low: int, high: int, value: float = 0.0) -> np.ndarray:
    ends = [(0, 0), (0, 0), *[(low, high)] * (x.ndim - 2)]
    return np.pad(x, ends, constant_values=value)


def test_conv_is_correlation_over_channels() -> None:
    wanted = correlated(IMAGES, KERNELS)
    np.testing.assert_allclose(run(xp.conv, IMAGES, KERNELS), wanted)
    found = run(lambda x, k: xp.conv(x, k, stride=(2, 1), padding=1), IMAGES, KERNELS)
    np.testing.assert_allclose(found, correlated(padded(IMAGES, 1, 1), KERNELS)[:, :, ::2])
    ends = [(1, 0), (2, 3)]
    found = run(lambda x, k: xp.conv(x, k, padding=ends), IMAGES, KERNELS)
    wide = np.pad(IMAGES, [(0, 0), (0, 0), *ends])
    np.testing.assert_allclose(found, correlated(wide, KERNELS))


def test_channels_last_is_the_same_with_other_axes() -> None:
    def last(x: Any, k: Any) -> Any:
        return xp.conv(x, k, stride=2, padding="same", channels_last=True)

    wanted = run(lambda x, k: xp.conv(x, k, stride=2, padding="same"), IMAGES, KERNELS)
    found = run(last, IMAGES.transpose(0, 2, 3, 1), KERNELS.transpose(2, 3, 1, 0))
    np.testing.assert_allclose(found, wanted.transpose(0, 2, 3, 1))


def test_dilation_and_groups() -> None:
    holes = np.zeros((4, 3, 5, 5))
    holes[:, :, ::2, ::2] = KERNELS
    found = run(lambda x, k: xp.conv(x, k, dilation=2), IMAGES, KERNELS)
    np.testing.assert_allclose(found, correlated(IMAGES, holes))
    spread = np.zeros((2, 3, 11, 13))
    spread[:, :, ::2, ::2] = IMAGES
    found = run(lambda x, k: xp.conv(x, k, image_dilation=2), IMAGES, KERNELS)
    np.testing.assert_allclose(found, correlated(spread, KERNELS))
    depthwise = RNG.normal(size=(3, 1, 3, 3))
    found = run(lambda x, k: xp.conv(x, k, groups=3), IMAGES, depthwise)
    for c in range(3):
        wanted = correlated(IMAGES[:, c : c + 1], depthwise[c : c + 1])
        np.testing.assert_allclose(found[:, c : c + 1], wanted)


def test_pooling() -> None:
    windows = np.lib.stride_tricks.sliding_window_view
    found = run(lambda x: xp.max_pool(x, 2), IMAGES)
    np.testing.assert_array_equal(
        found, windows(IMAGES, (2, 2), (2, 3))[:, :, ::2, ::2].max((4, 5))
    )
    wide = padded(IMAGES, 1, 1, -np.inf)
    found = run(lambda x: xp.max_pool(x, 3, stride=2, padding=1), IMAGES)
    np.testing.assert_array_equal(found, windows(wide, (3, 3), (2, 3))[:, :, ::2, ::2].max((4, 5)))
    wide = padded(IMAGES, 1, 1, np.nan)
    found = run(lambda x: xp.avg_pool(x, 3, stride=1, padding=1), IMAGES)
    np.testing.assert_allclose(found, np.nanmean(windows(wide, (3, 3), (2, 3)), (4, 5)))
    found = run(lambda x: xp.avg_pool(x, 3, stride=1, padding=1, count_padding=True), IMAGES)
    np.testing.assert_allclose(found, np.nan_to_num(windows(wide, (3, 3), (2, 3))).mean((4, 5)))
    found = run(lambda x: xp.avg_pool(x, (6, 7), channels_last=False), IMAGES)
    np.testing.assert_allclose(found[..., 0, 0], IMAGES.mean((2, 3)))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: xp.conv(x, x[:, :2]), "3 features on axis 1, 1 groups of 2 are 2"),
        (lambda x: xp.conv(x, x[0]), "the same spatial axes"),
        (lambda x: xp.max_pool(x[0, 0], 2), "at least one spatial axis"),
        (
            lambda x: xp.max_pool(x, (2, 2, 2)),
            r"window \(2, 2, 2\) is not one number for each of 2",
        ),
        (lambda x: xp.max_pool(x, 0), "has a size of 0"),
    ],
)
def test_bad_input_is_one_sentence(fn: Callable[..., Any], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        run(fn, IMAGES)


# Kernels


def windows_among_others() -> Graph:
    """Work before and after windows, which a row is made of."""
    b = GraphBuilder()
    x = b.input("x", (3, 40, 12), F32)
    attrs = window_attrs((1, 3, 3), stride=(1, 2, 1), low=(0, 1, 1), high=(0, 1, 1))
    top = b.add("reduce_window_max", b.add("tanh", x), **attrs)
    return b.build([b.add("exp", top), b.add("reduce_sum", top, axes=(2,))])


def row_of_windows() -> Graph:
    """A softmax's row of windows of 40 elements, which are not unrolled."""
    b = GraphBuilder()
    x = b.input("x", (5, 300), F32)
    mean = b.add("reduce_window_sum", x, **window_attrs((1, 40), stride=(1, 2), low=(0, 7)))
    shape = b.type_of(mean).shape
    top = b.add("broadcast", b.add("reduce_max", mean, axes=(1,)), shape=shape, dims=(0,))
    powers = b.add("exp", b.add("sub", mean, top))
    return b.build([powers, b.add("reduce_sum", powers, axes=(1,))])


def two_poolings() -> tuple[Graph, tuple[int, ...]]:
    b = GraphBuilder()
    attrs = window_attrs((1, 3), low=(0, 1), high=(0, 1))
    once = b.add("reduce_window_sum", b.input("x", (512, 512), F32), **attrs)
    graph = b.build([b.add("reduce_window_sum", once, **attrs)])
    return graph, (1, 2)


@pytest.mark.parametrize("make", [windows_among_others, row_of_windows])
def test_windows_share_a_kernel_with_what_is_around_them(make: Callable[[], Graph]) -> None:
    graph = make()
    inputs = random_inputs(graph, 0)
    reference = reference_of(graph, inputs)
    cases = [Case(graph, whole(graph, launch), "") for launch in LAUNCHES]
    for artifact in build(cases):
        result = check(tuple(poisoned_run(artifact, list(inputs))), reference)
        assert result.ok, result.message
    made = one_kernel(graph)
    result = check(run_kernel(library_of([made]), made, inputs), reference)
    assert result.ok, result.message


def test_windows_of_windows_are_two_kernels() -> None:
    """Each element of the first would be computed for every window that has it."""
    graph, nodes = two_poolings()
    verdict = check_group(graph, nodes, graph.outputs)
    assert isinstance(verdict, Refusal) and verdict.rule == "parallelism"


# Costs


def test_only_elements_are_multiplied() -> None:
    """Neither padding nor the holes of a transposed convolution are work."""
    b = GraphBuilder()
    x, k = b.input("x", (1, 1, 8), F32), b.input("k", (1, 1, 3), F32)
    b.build([b.add("conv", x, k, **conv_attrs(1, low=(1,), high=(1,)))])
    graph = b.build([b.add("conv", x, k, **conv_attrs(1, low=(1,), high=(1,)))])
    assert spec_of("conv").flops(graph.call(graph.outputs[0].node)) == 2 * (3 * 8 - 2)
    holes = conv_attrs(1, lhs_dilation=(2,), low=(1,), high=(1,))
    graph = b.build([b.add("conv", x, k, **holes)])
    assert spec_of("conv").flops(graph.call(graph.outputs[0].node)) == 2 * (8 + 2 * 7)


def test_strides_that_skip_elements_need_fewer() -> None:
    b = GraphBuilder()
    x, k = b.input("x", (1, 2, 64), F32), b.input("k", (2, 2, 1), F32)
    y = b.add("conv", x, k, **conv_attrs(1, stride=(4,)))
    work = group_work(b.build([y]), (y.node,), (y,))
    assert work.nbytes == 4 * (2 * 16 + 4 + 2 * 16)


axes = st.builds(
    Sliding, st.integers(0, 40), st.integers(1, 6), st.integers(1, 5), st.integers(-4, 9),
    st.integers(-4, 9), st.integers(1, 4), st.integers(1, 4),
)  # fmt: skip


@given(axes, st.integers(0, 3))
@example(Sliding(7, 3, 2, 1, 1), 99)
@example(Sliding(0, 2, 1, 3, 3), 0)
@example(Sliding(300, 3, 2, 1, 1, 3, 2), 3)
def test_a_census_counts_windows(axis: Sliding, looked_at: int) -> None:
    """Also where of windows that are alike only so many are looked at."""
    held = np.zeros((axis.count, axis.size, axis.extent), bool)
    for window in range(axis.count):
        for tap in range(axis.size):
            place = window * axis.stride + tap * axis.window_dilation - axis.low
            if 0 <= place < axis.spread and place % axis.base_dilation == 0:
                held[window, tap, place // axis.base_dilation] = True
    with mock.patch.object(sliding, "LOOKED_AT", looked_at):
        found = census.__wrapped__(axis)
    assert (found.pairs, found.touched) == (held.sum(), held.any((0, 1)).sum())
    assert found.used == held.any((0, 2)).sum()
    assert found.most == held.sum((0, 1)).max(initial=0)
    assert found.busiest == held.sum((0, 2)).max(initial=0)
    assert found.fewest == (held.sum((1, 2)).min() if axis.count else 0)


def test_a_census_does_not_look_at_every_window() -> None:
    """A file of a few bytes may ask for as many as it likes."""
    far = census(Sliding(6, 3, low=1 << 40, high=1 << 40))
    assert (far.pairs, far.touched, far.fewest, far.most) == (18, 6, 0, 3)
    long = census(Sliding(1 << 40, 3, stride=2, low=1))
    assert (long.pairs, long.touched, long.busiest) == (3 * (1 << 39) - 1, 1 << 40, 1 << 39)


# Baselines


def image(b: GraphBuilder, shape: tuple[int, ...] = (1, 8, 16, 16)) -> Value:
    return b.input("x", shape, F32)


def convolved(b: GraphBuilder, x: Value) -> Value:
    kernel = b.input("k", (8, 8, 3, 3), F32)
    return b.add("conv", x, kernel, **conv_attrs(2, low=(1, 1), high=(1, 1)))


@pytest.mark.parametrize("name", ["xla-2022", "xla-2026", "inductor", "nvfuser", "greedy-chains"])
def test_a_convolution_is_a_library_call(name: str) -> None:
    b = GraphBuilder()
    p = Ruled(name, b, b.add("tanh", convolved(b, b.add("exp", image(b)))))
    assert p.groups == [["conv"], ["exp"], ["tanh"]]


@pytest.mark.parametrize(("name", "rule"), [("tvm", "dominator"), ("tensorrt", "epilogue")])
def test_some_give_it_an_epilogue(name: str, rule: str) -> None:
    b = GraphBuilder()
    p = Ruled(name, b, b.add("tanh", convolved(b, image(b))))
    assert p.fused(rule, "conv", "tanh")


def test_tensorrt_pads_in_the_convolution() -> None:
    for value, fused in ((0.0, True), (1.0, False)):
        b = GraphBuilder()
        width = {"low": (0, 0, 2, 0), "high": (0, 0, 0, 0)}
        padded = b.add("pad", image(b), b.constant(value, F32), **width)
        p = Ruled("tensorrt", b, convolved(b, padded))
        assert p.fused("padding", "pad", "conv") == fused
        assert p.refused("zero", "pad", "conv") != fused


def pooled(b: GraphBuilder, size: int) -> Value:
    attrs = window_attrs((1, 1, size, size))
    return b.add("neg", b.add("reduce_window_max", b.add("tanh", image(b)), **attrs))


@pytest.mark.parametrize(
    ("name", "size", "groups"),
    [
        ("xla-2022", 3, [["neg", "reduce_window_max"], ["tanh"]]),
        ("inductor", 5, [["neg", "reduce_window_max", "tanh"]]),
        ("inductor", 6, [["neg"], ["reduce_window_max"], ["tanh"]]),
        ("nvfuser", 3, [["neg"], ["reduce_window_max"], ["tanh"]]),
        ("tvm", 3, [["neg", "reduce_window_max"], ["tanh"]]),
        ("tensorrt", 3, [["neg"], ["reduce_window_max"], ["tanh"]]),
    ],
)
def test_windows_by_each_rule(name: str, size: int, groups: list[list[str]]) -> None:
    b = GraphBuilder()
    assert Ruled(name, b, pooled(b, size)).groups == groups
