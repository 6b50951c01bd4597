"""Scatter beyond the samples of its rows: order, what shares a kernel with it, and refusals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_check import check

import autofuse
from autofuse.errors import AutofuseError
from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jaxpr import from_jax
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.measure.check import check as checked
from autofuse.measure.check import reference_of
from autofuse.plan.groups import group_of
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig

Shapes = tuple[tuple[int, ...], ...]
RNG = np.random.default_rng(11)


def add(b: GraphBuilder, op: str, shapes: Shapes, **attrs: object) -> Value:
    dtypes = ("f32", "i32", "f32")
    values = [b.input(f"v{k}", s, d) for k, (s, d) in enumerate(zip(shapes, dtypes, strict=True))]
    return b.add(op, *values, **{"axes": (0,), "batch": 0, "drop": True, **attrs})


def scattered(op: str, shapes: Shapes, **attrs: object) -> Graph:
    b = GraphBuilder()
    return b.build([add(b, op, shapes, **attrs)])


def one_kernel(graph: Graph) -> autofuse.tuning.CompiledPlan:
    nodes = [n for n, node in enumerate(graph.nodes) if node.op not in ("input", "constant")]
    candidate = Candidate(FusionPlan((group_of(graph, nodes),)), (LaunchConfig(),), ((),))
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
