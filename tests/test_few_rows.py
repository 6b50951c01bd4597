"""The one-pass tile form where there are few rows, and where results are only reshaped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.kernel.ir.types import Local, statements
from autofuse.kernel.lower import extract, lower
from autofuse.plan.fusion.reshaped import without_reshapes
from autofuse.plan.parameters import LaunchConfig
from autofuse.simplify import normal_form
from search_spaces import CpuLaunchSpace
from tests.support.emulation import library_of, one_kernel, run_kernel
from tests.support.online_cases import (
    KEYS,
    QKV,
    RELATIVES,
    ROWS,
    Function,
    Shapes,
    check,
    grouped,
    launch_of,
    relative,
    scores,
)
from tests.support.seeds import examples
from tests.support.tile_programs import softmax, whole

ALONG_TERMS = st.fixed_dictionaries(
    {
        "micro": st.sampled_from(("1x8", "2x4", "3x8", "2x8")),
        "row_block": st.sampled_from((1, 4, 64)),
        "column_block": st.sampled_from((16, 64, 1024)),
        "pack": st.booleans(),
        "vector_bits": st.sampled_from((512, 256)),
    }
)


@settings(max_examples=examples(6), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 9), st.integers(2, 200), st.integers(1, 40)),
    wide=st.integers(2, 90),
    chosen=ALONG_TERMS,
)
@example(sizes=(1, 150, 64), wide=64, chosen={"micro": "1x8", "vector_bits": 256})
def test_few_rows_are_summed_along_terms(
    sizes: tuple[int, int, int], wide: int, chosen: dict[str, int | str | bool]
) -> None:
    rows, keys, depth = sizes
    shapes = ((rows, depth), (keys, depth), (keys, wide))
    graph = canonical(trace(lambda q, k, v: softmax(q @ k.T) @ v, *(spec(s) for s in shapes)))
    check(graph, launch_of(dot=True, **chosen))


@pytest.mark.parametrize(
    "name", ["causal", "bias", "grouped", "keys computed", "keys lying across", "two layers"]
)
@settings(max_examples=1, deadline=None)
@given(chosen=ALONG_TERMS)
def test_relatives_are_right_along_terms(name: str, chosen: dict[str, int | str | bool]) -> None:
    check(relative(name), launch_of(dot=True, **chosen))


@pytest.mark.parametrize("keys_first", [False, True])
def test_one_row_reads_keys_and_values_as_they_lie(keys_first: bool) -> None:
    def decode(q: Any, k: Any, v: Any) -> Any:
        if keys_first:
            k, v = (xp.permute_dims(x, (1, 0, 2)) for x in (k, v))
        return softmax(scores(q, k)) @ v

    lying = (KEYS, 3, 32) if keys_first else (3, KEYS, 32)
    graph = normal_form(trace(decode, spec((3, 1, 32)), spec(lying), spec(lying)))
    launch = CpuLaunchSpace(256).default(graph, whole(graph))
    assert (launch["dot"], launch["micro"]) == (True, "1x8")
    kernel = lower(extract(graph, whole(graph))[0], launch)
    kept = [s for s in statements(kernel.body) if isinstance(s, Local)]
    assert sum(s.size for s in kept) < 32 * KEYS, "neither is copied"
    check(graph, launch)


def test_register_tiles_that_divide_later_products_come_first() -> None:
    shapes = ((4, 256, 64),) * 3
    graph = canonical(trace(lambda q, k, v: softmax(scores(q, k)) @ v, *map(spec, shapes)))
    assert CpuLaunchSpace(256).default(graph, whole(graph))["micro"] == "6x16"


def merged(q: Any, k: Any, v: Any) -> Any:
    mixed = xp.permute_dims(softmax(scores(q, k)) @ v, (1, 0, 2))
    return mixed.reshape(ROWS, mixed.shape[1] * mixed.shape[2])


def all_heads(q: Any, k: Any, v: Any) -> Any:
    return grouped(q, k, v).reshape(6, ROWS, 20)


RESHAPED: dict[str, tuple[Function, Shapes]] = {
    "heads side by side": (merged, QKV),
    "groups one after another": (all_heads, RELATIVES["grouped"][1]),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_results_may_be_reshaped(name: str) -> None:
    function, shapes = RESHAPED[name]
    graph = canonical(trace(function, *map(spec, shapes)))
    check(graph, launch_of())
    launch = LaunchConfig.of(
        threads=64, impl="loops", micro="16x32", row_block=32, column_block=32, pack=False
    )
    one = one_kernel(graph, launch)
    inputs = random_inputs(graph, 5)
    (got,) = run_kernel(library_of([one]), one, inputs)
    np.testing.assert_allclose(got, evaluate(graph, inputs)[0], rtol=2e-4, atol=2e-4)


def test_what_two_results_are_reshaped_from_is_not_written_twice() -> None:
    def twice(a: Any, b: Any) -> Any:
        made = a @ b
        return made.reshape(24, 5), made.reshape(6, 20)

    graph = canonical(trace(twice, spec((12, 8)), spec((8, 10))))
    group = whole(graph)
    assert without_reshapes(graph, group.nodes, group.outputs) is None
    found = without_reshapes(graph, group.nodes, group.outputs[:1])
    assert found is not None and graph.type_of(found[1][0]).shape == (12, 10)
    assert without_reshapes(graph, *found) is None
