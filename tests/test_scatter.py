"""Scatter beyond the samples of its rows: order, what shares a kernel with it, and refusals."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autofuse
from autofuse import xp
from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError, TraceError
from autofuse.frontends.jax.jaxpr import from_jax
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph, Value
from autofuse.measure.check.compare import check as checked
from autofuse.measure.check.compare import reference_of
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig
from tests.support.emulation import library_of, run_kernel
from tests.support.emulation import one_kernel as one_on_gpu
from tests.support.jax_check import check

Shapes = tuple[tuple[int, ...], ...]
RNG = np.random.default_rng(11)


def add(b: GraphBuilder, op: str, shapes: Shapes, **attrs: object) -> Value:
    dtypes = ("f32", "i32", "f32")
    values = [b.input(f"v{k}", s, d) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    return b.add(op, *values, **{"axes": (0,), "batch": 0, "drop": True, **attrs})


def scattered(op: str, shapes: Shapes, **attrs: object) -> Graph:
    b = GraphBuilder()
    return b.build([add(b, op, shapes, **attrs)])


def one_kernel(
    graph: Graph,
    launch: LaunchConfig = LaunchConfig(),  # noqa: B008 - frozen
) -> autofuse.tuning.CompiledPlan:
    nodes = [n for n, node in enumerate(graph.nodes) if node.op not in ("input", "constant")]
    candidate = Candidate(FusionPlan((group_of(graph, nodes),)), (launch,), ((),))
    return autofuse.compile(graph, device="cpu", plan=candidate)


def test_what_is_scattered_may_be_computed_in_the_kernel() -> None:
    def weighted(edges: jax.Array, x: jax.Array, to: jax.Array) -> jax.Array:
        return jnp.zeros((20, 8)).at[to].add(jnp.tanh(x) * edges[:, None], mode="drop")

    edges, x = RNG.standard_normal(300, np.float32), RNG.standard_normal((300, 8), np.float32)
    to = RNG.integers(-3, 23, 300).astype(np.int32)
    graph = canonical(check(weighted, jnp.asarray(edges), jnp.asarray(x), jnp.asarray(to)))
    result = checked(one_kernel(graph)(edges, x, to), reference_of(graph, [edges, x, to]))
    assert result.ok, result.message


def test_of_several_windows_in_one_place_the_last_stays() -> None:
    graph = canonical(scattered("scatter", ((4, 50), (9, 1), (9, 1, 50))))
    new_rows = RNG.standard_normal((9, 1, 50), np.float32)
    places = np.array([0, 1, 0, 3, 3, 3, 1, 0, 9], np.int32)[:, None]
    (found,) = one_kernel(graph)(np.zeros((4, 50), np.float32), places, new_rows)
    np.testing.assert_array_equal(found[[0, 1, 3]], new_rows[[7, 6, 5], 0])
    np.testing.assert_array_equal(found[2], 0)


def joined_points() -> Graph:
    """Elements of two arrays, some at places out of range, added to a row that is then a square."""
    b = GraphBuilder()
    x = b.input("x", (36,), "f32")
    parts = [b.input(n, (700,), d) for n, d in (("i", "i32"), ("j", "i32"), ("u", "f32"))]
    places = b.add("concat", *parts[:2], axis=0)
    elements = b.add("concat", b.add("exp", parts[2]), parts[2], axis=0)
    operands = (x, b.add("reshape", places, shape=(1400, 1)))
    made = b.add("scatter_add", *operands, b.add("reshape", elements, shape=(1400, 1)),
                 axes=(0,), batch=0, drop=True)  # fmt: skip
    return canonical(b.build([b.add("reshape", made, shape=(6, 6))]))


def test_places_of_elements_are_found_in_lanes() -> None:
    """In blocks, which the seam of two arrays cuts; what is only reshaped is written as it is."""
    graph = joined_points()
    places = (RNG.integers(-3, 40, 700).astype(np.int32) for _ in range(2))
    inputs = [RNG.standard_normal(36, np.float32), *places, RNG.standard_normal(700, np.float32)]
    wanted = reference_of(graph, inputs)
    for launch in (LaunchConfig(), LaunchConfig.of(stage=False)):
        result = checked(one_kernel(graph, launch)(*inputs), wanted)
        assert result.ok, result.message
    made = one_on_gpu(graph, LaunchConfig.of(threads=64))
    result = checked(run_kernel(library_of([made]), made, inputs), wanted)
    assert result.ok, result.message


def test_what_is_scattered_is_read_in_another_kernel() -> None:
    b = GraphBuilder()
    made = add(b, "scatter_add", ((9,), (4, 1), (4, 1)))
    graph = canonical(b.build([b.add("exp", made)]))
    group = group_of(graph, [3, 4])
    verdict = check_group(graph, group.nodes, group.outputs)
    assert isinstance(verdict, Refusal) and verdict.rule == "scatter"
    inputs = [RNG.standard_normal(9, np.float32), np.array([[8], [-2], [8], [3]], np.int32),
              RNG.standard_normal((4, 1), np.float32)]  # fmt: skip
    result = checked(autofuse.compile(graph, device="cpu")(*inputs), reference_of(graph, inputs))
    assert result.ok, result.message


@pytest.mark.parametrize(
    ("shapes", "attrs", "message"),
    [
        (((5, 4), (3, 1), (3, 1, 4)), {"axes": (2,)}, "need different axes after the batch"),
        (((5, 4), (3, 1), (3, 1, 4)), {"axes": ()}, "need different axes after the batch"),
        (((5, 4), (3, 2), (3, 1, 4)), {"axes": (0,)}, r"are not \[batch, windows, 1\]"),
        (((5, 4), (3, 1), (3, 6, 4)), {"axes": (0,)}, "within"),
        (((5, 4), (3, 1), (3, 1, 4)), {"axes": (0,), "batch": 3}, "no such leading axes"),
        (((5, 4), (3, 1), (3, 1, 4)), {"axes": (0,), "drop": 1}, "not true or false"),
    ],
)
def test_refusals(shapes: Shapes, attrs: dict[str, object], message: str) -> None:
    with pytest.raises(AutofuseError, match=message):
        scattered("scatter", shapes, **attrs)


def test_many_windows_at_no_computed_place_are_refused() -> None:
    numbers = jax.lax.ScatterDimensionNumbers((1,), (), ())
    args = (jnp.ones(3), jnp.zeros((2, 0), jnp.int32), jnp.ones((2, 3)))
    with pytest.raises(FrontendError, match="2 windows at one place"):
        from_jax(lambda x, i, u: jax.lax.scatter_add(x, i, u, numbers), *args)


def traced(fn: Callable[..., xp.TracedArray], *arrays: np.ndarray) -> np.ndarray:
    specs = [autofuse.spec(a.shape, a.dtype) for a in arrays]
    return evaluate(autofuse.trace(fn, *specs), arrays)[0]


def test_traced_python_writes_at_places() -> None:
    x = RNG.standard_normal((5, 4, 3)).astype(np.float32)
    rows, columns = np.array([[3, 0], [9, 3]], np.int32), np.array([2, -1, 0, 2], np.int32)
    new = RNG.standard_normal((2, 2, 4, 3)).astype(np.float32)
    wanted = x.astype(np.float64)
    wanted[0], wanted[3] = new[0, 1], new[1, 1]
    np.testing.assert_array_equal(traced(xp.scatter, x, rows, new), wanted)
    for name, fn in (("add", np.add), ("mul", np.multiply), ("min", np.minimum)):
        wanted = x.astype(np.float64)
        for k in (0, 2, 3):
            wanted[:, columns[k]] = fn(wanted[:, columns[k]], 0.5)
        found = traced(lambda v, i, n=name: xp.scatter(v, i, 0.5, axis=1, combine=n), x, columns)
        np.testing.assert_allclose(found, wanted)
    places = np.array([[2, 4], [0, 1], [0, 5], [2, 4]], np.int32)  # along axes 2 and 0
    wanted = x.astype(np.float64)
    wanted[4, :, 2], wanted[1, :, 0] = 7, 7
    np.testing.assert_array_equal(
        traced(lambda v, p: xp.scatter(v, p, 7, axis=(2, 0)), x, places), wanted
    )


def test_traced_python_sums_segments() -> None:
    x = RNG.standard_normal((50, 3)).astype(np.float32)
    numbers = RNG.integers(-1, 7, 50).astype(np.int32)
    found = traced(lambda v, n: xp.segment_sum(v, n, 6), x, numbers)
    wanted = np.stack([x[numbers == k].astype(np.float64).sum(0) for k in range(6)])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x, i: xp.scatter(x, x, 1.0), "indices must be integers"),
        (lambda x, i: xp.scatter(x, i, 1.0, axis=(0, 1)), "no position for each of 2 axes"),
        (lambda x, i: xp.scatter(x, i, 1.0, combine="sub"), "combine is 'sub', not one of set"),
        (lambda x, i: xp.scatter(x, i, x), "does not broadcast"),
        (lambda x, i: xp.scatter(x, i, 1.0, axis=2), "out of range"),
    ],
)
def test_traced_python_refuses(fn: Callable[..., xp.TracedArray], message: str) -> None:
    with pytest.raises(TraceError, match=message):
        traced(fn, np.zeros((5, 4), np.float32), np.zeros(3, np.int32))


def test_rows_written_as_vectors_wait_for_what_was_there() -> None:
    """On a GPU other threads may have filled the array than those that write windows into it."""
    graph = canonical(scattered("scatter", ((40, 8), (48, 1), (48, 1, 8))))
    places = RNG.integers(-1, 41, (48, 1)).astype(np.int32)
    inputs = [np.ones((40, 8), np.float32), places, RNG.standard_normal((48, 1, 8), np.float32)]
    made = one_on_gpu(graph, LaunchConfig.of(threads=256, vector=4))
    (found,) = run_kernel(library_of([made]), made, inputs)
    np.testing.assert_array_equal(found, evaluate(graph, inputs)[0])
