"""Sums of products by name, and elements between elements, against NumPy and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from autofuse.graph import GraphWriter, evaluate
from autofuse.graph.composites.einsum import einsum
from autofuse.graph.composites.resample import Resampling, pick_along, sample_at, weigh_along
from autofuse.ops import DType, GraphError

RNG = np.random.default_rng(0)
SIZES = {"a": 2, "b": 3, "c": 4, "d": 5}


@pytest.mark.parametrize(
    "equation",
    [
        "ab,bc->ac", "ab,bc", "aab->ba", "abc,cd,bd->a", "ab,ab->ab", "ab->", "...a,a...->...",
        "b...a,...ad->b...d", "ab,cb->ca", "aa,bb->ab",
    ],
)  # fmt: skip
def test_einsum(equation: str) -> None:
    terms = equation.partition("->")[0].split(",")
    arrays = [RNG.normal(size=_shape(term)) for term in terms]
    w = GraphWriter()
    values = [w.input(f"x{k}", a.shape, DType.F64) for k, a in enumerate(arrays)]
    (found,) = evaluate(w.build([einsum(w, equation, values)]), arrays)
    np.testing.assert_allclose(found, np.einsum(equation, *arrays), atol=1e-12)


def _shape(term: str) -> list[int]:
    before, dots, after = term.partition("...")
    return [*(SIZES[n] for n in before), *([7] if dots else []), *(SIZES[n] for n in after)]


def test_an_equation_that_does_not_fit_is_refused() -> None:
    w = GraphWriter()
    x = w.input("x", (2, 3), DType.F32)
    for equation in ("a->a", "ab,bc->ac", "ab->abc", "aa->a"):
        with pytest.raises(GraphError):
            einsum(w, equation, [x])


@pytest.mark.parametrize(
    "places", [[0, 0, 1, 1, 2, 2], [0, 2, 4], [3, 4, 0, 1], [4, 0, 2, 2, 1], [2], [], [4, 3, 2, 1]]
)
def test_elements_at_known_places(places: list[int]) -> None:
    at, x = np.array(places, np.int64), RNG.normal(size=(2, 3 if len(places) == 6 else 5, 2))
    w = GraphWriter()
    graph = w.build([pick_along(w, w.input("x", x.shape, DType.F64), 1, at)])
    np.testing.assert_array_equal(evaluate(graph, [x])[0], x[:, at])


@pytest.mark.parametrize("taps", [2, 20])
def test_weighted_elements_one_by_one_or_as_a_matrix(taps: int) -> None:
    x = RNG.normal(size=(3, 24))
    places, weights = RNG.integers(0, 24, (7, taps)), RNG.normal(size=(7, taps))
    w = GraphWriter()
    value = weigh_along(w, w.input("x", x.shape, DType.F64), 1, places, weights)
    graph = w.build([value])
    np.testing.assert_allclose(evaluate(graph, [x])[0], (x[:, places] * weights).sum(2))
    assert ("dot_general" in [node.op for node in graph.nodes]) == (taps == 20)


@pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_places_outside_an_image(mode: str, outside: str) -> None:
    """As SciPy has it: its reflection is about the edges of the last elements."""
    image, at = RNG.normal(size=(1, 1, 4, 5)), RNG.uniform(-9, 14, size=(2, 1, 40))
    w = GraphWriter()
    values = [w.input(n, a.shape, DType.F64) for n, a in (("x", image), ("r", at[0]), ("c", at[1]))]
    found = sample_at(w, values[0], values[1:], Resampling(mode, outside))
    (ours,) = evaluate(w.build([found]), [image, at[0], at[1]])
    named = {"zeros": "grid-constant", "border": "nearest", "reflection": "reflect"}[outside]
    order = 0 if mode == "nearest" else 1
    theirs = ndimage.map_coordinates(image[0, 0], at[:, 0], order=order, mode=named)
    np.testing.assert_allclose(ours[0, 0], theirs, atol=1e-12)
