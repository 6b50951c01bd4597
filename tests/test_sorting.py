"""Sorting: both ways to merge, every dtype, ties, NaNs, and what shares a kernel with it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import autofuse
from autofuse import xp
from autofuse.frontends.errors import TraceError
from autofuse.graph import GraphWriter
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.composites import order as composites_order
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.kernel.lower import lower
from autofuse.kernel.text.c.printer import LONG_BYTES, STACK_BYTES, on_heap
from autofuse.measure.check.compare import check as checked
from autofuse.measure.check.compare import reference_of
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import NUMBERS
from autofuse.ops.spec import sampled
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.jax_check import check
from tests.support.seeds import examples

ODD = (1.5, -0.0, np.nan, 0.0, np.inf, -np.inf, 1.5, -np.nan, -2.0, 0.0)
WAYS = ("runs", "ranks")


def ordering(shape: tuple[int, ...], axis: int, dtype: DType, descending: bool) -> Graph:
    b = GraphBuilder()
    x = b.input("x", shape, dtype.value)
    return canonical(b.build([b.add("argsort", x, axis=axis, descending=descending)]))


def computed(graph: Graph, merge: str, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """What one C kernel for the whole graph computes."""
    nodes = [n for n, node in enumerate(graph.nodes) if node.op != "input"]
    plan = FusionPlan((group_of(graph, nodes),))
    launch = LaunchConfig.of(threads=1, merge=merge)
    compiled = autofuse.compile(graph, device="cpu", plan=Candidate(plan, (launch,), ((),)))
    return tuple(compiled(*inputs))


@pytest.mark.wide(5)
@pytest.mark.parametrize(("merge", "descending"), [("runs", False), ("ranks", True)])
@pytest.mark.parametrize("dtype", [*sampled(NUMBERS), DType.U64], ids=str)
def test_order_of_few_different_values(dtype: DType, descending: bool, merge: str) -> None:
    """Many are equal, and must keep their order."""
    rng = np.random.default_rng(5)
    low = -3 if dtype.is_signed or dtype.is_float else 0
    x = rng.integers(low, 4, (3, 77)).astype(dtype.numpy)
    if dtype.is_float:
        x[0, : len(ODD)] = np.array(ODD).astype(dtype.numpy)
    else:
        info = np.iinfo(dtype.numpy)
        x[0, :4] = (info.max, info.min, info.max, info.min)
    graph = ordering((3, 77), 1, dtype, descending)
    (found,) = computed(graph, merge, x)
    (wanted,) = evaluate(graph, [x])
    np.testing.assert_array_equal(found, wanted)


@settings(max_examples=examples(12), deadline=None)
@given(
    shape=st.sampled_from([(1,), (2,), (3,), (31,), (64,), (65,), (300,), (5, 9), (4, 3, 17)]),
    axis=st.integers(0, 2), descending=st.booleans(), merge=st.sampled_from(WAYS),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_every_length_and_axis(
    shape: tuple[int, ...], axis: int, descending: bool, merge: str, seed: int
) -> None:
    axis %= len(shape)
    x = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)
    graph = ordering(shape, axis, DType.F32, descending)
    (found,) = computed(graph, merge, x)
    np.testing.assert_array_equal(found, evaluate(graph, [x])[0])


def test_the_emulated_kernel_orders_alike() -> None:
    graph = ordering((4, 100), 1, DType.F32, True)
    x = np.random.default_rng(1).integers(-9, 9, (4, 100)).astype(np.float32)
    x[1, : len(ODD)] = ODD
    made = one_kernel(graph)
    (found,) = run_kernel(library_of([made]), made, [x])
    np.testing.assert_array_equal(found, evaluate(graph, [x])[0])


@pytest.mark.parametrize("merge", WAYS)
def test_sorting_shares_a_kernel_with_its_neighbours(merge: str) -> None:
    def routed(x: xp.TracedArray, w: xp.TracedArray) -> tuple[xp.TracedArray, ...]:
        probabilities = xp.softmax(x * w)
        best, where = xp.top_k(probabilities, 3)
        return best / xp.sum(best, axis=-1, keepdims=True), where

    graph = canonical(
        autofuse.trace(routed, autofuse.spec((6, 40), "f32"), autofuse.spec((40,), "f32"))
    )
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal((6, 40), np.float32), rng.standard_normal(40, np.float32)]
    result = checked(computed(graph, merge, *inputs), reference_of(graph, inputs))
    assert result.ok, result.message


def test_rows_that_a_stack_cannot_hold_are_on_the_heap() -> None:
    short, long = (
        lower(ordering((2, n), 1, DType.F32, False), LaunchConfig()) for n in (1 << 10, 1 << 19)
    )
    assert not on_heap(short)
    kept = on_heap(long)
    assert sum(kept.values()) > STACK_BYTES and min(kept.values()) >= LONG_BYTES


def test_a_running_sum_of_millions_of_elements() -> None:
    n = 6_000_000
    graph = autofuse.trace(lambda x: xp.cumulative_sum(x), autofuse.spec((n,), "i32"))
    found = autofuse.compile(graph, device="cpu")(np.ones(n, np.int32))
    np.testing.assert_array_equal(found[0], np.arange(1, n + 1))


def test_a_loop_keeps_no_order_in_registers() -> None:
    graph = autofuse.trace(
        lambda x: xp.fori_loop(3, lambda t, s: xp.sort(s) * 2, x), autofuse.spec((4, 8), "f32")
    )
    loop = next(n for n, node in enumerate(graph.nodes) if node.op == "loop")
    verdict = check_group(graph, (loop,), group_of(graph, [loop]).outputs)
    assert isinstance(verdict, Refusal) and verdict.rule == "loop-body"
    x = np.random.default_rng(3).standard_normal((4, 8)).astype(np.float32)
    np.testing.assert_array_equal(autofuse.compile(graph, device="cpu")(x)[0], np.sort(x) * 8)


def test_programs_of_jax() -> None:
    x = jnp.asarray(np.random.default_rng(4).integers(-4, 4, (5, 23)), jnp.float32)
    y = jnp.asarray(np.random.default_rng(5).standard_normal((5, 23)), jnp.float32)
    odd = x.at[1, : len(ODD)].set(jnp.asarray(ODD, jnp.float32))
    check(lambda v: jnp.sort(v), odd, exact=True)
    check(lambda v: jnp.sort(v, axis=0, descending=True), x, exact=True)
    check(lambda v: jnp.argsort(v, stable=True), odd, exact=True)
    check(lambda v, w: lax.sort((v, w), num_keys=1), x, y, exact=True)
    check(lambda v, w: lax.sort((v, x[::-1], w), dimension=0, num_keys=2), x, y, exact=True)
    check(lambda v: lax.top_k(v, 4), x, exact=True)
    check(lambda v: jnp.median(v, axis=1), y)
    check(lambda v: jnp.take_along_axis(v, jnp.argsort(v), 1), y, exact=True)
    check(lambda v: lax.cumlogsumexp(v, axis=1, reverse=True), 40 * y)


def test_traced_python() -> None:
    x = np.random.default_rng(6).integers(0, 9, (4, 11)).astype(np.int32)

    def run(fn: object) -> list[np.ndarray]:
        return evaluate(autofuse.trace(fn, autofuse.spec(x.shape, "i32")), [x])

    np.testing.assert_array_equal(run(lambda v: xp.sort(v, axis=0))[0], np.sort(x, 0))
    (down,) = run(lambda v: xp.sort(v, descending=True))
    np.testing.assert_array_equal(down, -np.sort(-x))
    (order,) = run(lambda v: xp.argsort(v))
    np.testing.assert_array_equal(order, np.argsort(x, kind="stable"))
    best, where = run(lambda v: xp.top_k(v, 3, axis=0))
    np.testing.assert_array_equal(best, np.take_along_axis(x, where, 0))
    with pytest.raises(TraceError, match="no 12 largest elements"):
        run(lambda v: xp.top_k(v, 12))
    with pytest.raises(TraceError, match="indices must be integers"):
        run(lambda v: xp.take_along_axis(v, xp.astype(v, xp.float32)))


@settings(max_examples=examples(15), deadline=None)
@given(
    n=st.integers(256, 700), k=st.integers(1, 16), axis=st.sampled_from([0, 1]),
    dtype=st.sampled_from([DType.F32, DType.I32, DType.U8, DType.BOOL]), seed=st.integers(0, 99),
)  # fmt: skip
def test_the_largest_of_long_rows(n: int, k: int, axis: int, dtype: DType, seed: int) -> None:
    """Many are equal, and the first of them are wanted; nothing is below what fills blocks up."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2 if dtype is DType.BOOL else 4, (3, n)).astype(dtype.numpy)
    if dtype is DType.F32:
        x[0, rng.integers(0, n, len(ODD))] = ODD
        x[1] = -np.inf
    elif dtype is DType.I32:
        x[1] = np.iinfo(np.int32).min
    w = GraphWriter()
    v = w.input("x", x.shape if axis else x.T.shape, dtype)
    graph = w.build(list(composites_order.top_k(w, v, k, axis)))
    assert any(node.op == "reduce_max" for node in graph.nodes) == (n >= 16 * k)
    best, places = evaluate(graph, [x if axis else x.T])
    order = evaluate(ordering(x.shape, 1, dtype, True), [x])[0] if dtype is not DType.BOOL else (
        np.argsort(~x, axis=1, kind="stable")
    )  # fmt: skip
    np.testing.assert_array_equal(places if axis else places.T, order[:, :k])
    np.testing.assert_array_equal(best if axis else best.T, np.take_along_axis(x, order[:, :k], 1))


def test_running_log_of_sums_of_far_apart_terms() -> None:
    b = GraphBuilder()
    graph = b.build([b.add("cumlogsumexp", b.input("x", (2, 6), "f32"), axis=1)])
    inf = np.inf
    x = np.array([[-800, 0, 800, 0, -800, inf], [-inf, -inf, 1, 1, inf, -inf]], np.float32)
    with np.errstate(all="ignore"):
        wanted = np.logaddexp.accumulate(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(computed(canonical(graph), "runs", x)[0], wanted, rtol=1e-6)
