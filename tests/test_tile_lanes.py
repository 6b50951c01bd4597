"""Products with a batch axis last: a vector of them at once, where they lie so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Local, TileProduct, statements
from autofuse.kernel.lower import extract, lower
from autofuse.plan.parameters import MICRO, LaunchConfig
from autofuse.plan.types import Candidate, FusionPlan
from search_spaces import CpuLaunchSpace
from search_spaces.launch import first_option
from tests.support.batching import quick_library
from tests.support.seeds import examples
from tests.support.tile_programs import whole

LAST = ("mkb,knb->mnb", "kmb,nkb->nmb", "mkb,nkb->mnb", "kmb,knb->nmb")
MIXED = ("bmk,bkn->mnb", "mkb,knb->bmn", "kmb,bkn->nmb", "mk,knb->mnb", "mbk,kbn->mbn")


def product(order: str, sizes: dict[str, int], dtype: str = "f32", fused: bool = False) -> Graph:
    """A batch of products with axes in an order as einsum spells it; `fused`: work around it."""
    ins, out = order.split("->")
    left, right = ins.split(",")

    def arranged(x: Any, have: str, want: str) -> Any:
        for axis in set(want) - set(have):
            x, have = x[None], axis + have
        return xp.permute_dims(x, tuple(have.index(a) for a in want))

    def function(x: Any, y: Any, bias: Any) -> Any:
        made = arranged(x, left, "bmk") @ arranged(y, right, "bkn")
        made = arranged(made, "bmn", out)
        return np.maximum(made * 2 + bias, 0) if fused else made

    shapes = (tuple(sizes[a] for a in side) for side in (left, right, out))
    return canonical(trace(function, *(spec(shape, dtype) for shape in shapes)))


def launch_of(**chosen: int | str | bool) -> LaunchConfig:
    plain: dict[str, int | str | bool] = {
        "threads": 1, "impl": "loops", "micro": "6x64", "row_block": 128, "pack": True,
        "stage": True, "batch_lanes": True,
    }  # fmt: skip
    return LaunchConfig.of(**{**plain, **chosen})


def error(graph: Graph, launch: LaunchConfig) -> float:
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,))
    inputs = random_inputs(graph, 3)
    (found,) = quick_library(graph, candidate).run(inputs)
    (wanted,) = evaluate(graph, inputs)
    return float(np.max(np.abs(found - wanted)) / max(1.0, float(np.max(np.abs(wanted)))))


def tiles(graph: Graph, launch: LaunchConfig) -> list[TileProduct]:
    kernel = lower(extract(graph, whole(graph))[0], launch)
    return [s for s in statements(kernel.body) if isinstance(s, TileProduct)]


@settings(max_examples=examples(12), deadline=None)
@given(
    order=st.sampled_from((*LAST, *MIXED)),
    sizes=st.fixed_dictionaries(
        {
            "b": st.integers(2, 40),
            "m": st.integers(2, 20),
            "k": st.integers(1, 30),
            "n": st.integers(2, 20),
        }
    ),
    dtype=st.sampled_from(("f32", "f64")),
    fused=st.booleans(),
    micro=st.sampled_from(MICRO.choices),
    row_block=st.sampled_from((8, 128)),
    bits=st.sampled_from((512, 256)),
    threads=st.sampled_from((1, 2)),
)
def test_every_order_is_right(
    order: str, sizes: dict[str, int], dtype: str, fused: bool, micro: str, row_block: int,
    bits: int, threads: int,
) -> None:  # fmt: skip
    launch = launch_of(micro=micro, row_block=row_block, vector_bits=bits, threads=threads)
    assert error(product(order, sizes, dtype, fused), launch) < 1e-5


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_are_right_under_the_same_setting(dtype: str) -> None:
    graph = product("mkb,knb->mnb", {"b": 20, "m": 7, "k": 9, "n": 10}, dtype)
    assert error(graph, launch_of()) < 2e-2


@pytest.mark.parametrize("order", LAST)
def test_nothing_is_packed_where_the_batch_is_last(order: str) -> None:
    graph = product(order, {"b": 40, "m": 12, "k": 30, "n": 8}, fused=True)
    made = tiles(graph, launch_of())
    assert made and all(t.lanes == 16 for t in made)
    kernel = lower(extract(graph, whole(graph))[0], launch_of())
    scratch = {s.name[:3] for s in statements(kernel.body) if isinstance(s, Local)}
    assert scratch == {"acc"}


@pytest.mark.parametrize("order", MIXED)
def test_operands_that_lie_otherwise_are_packed(order: str) -> None:
    made = tiles(product(order, {"b": 40, "m": 12, "k": 30, "n": 8}), launch_of())
    assert made and not any(t.lanes for t in made)


def test_vectors_of_the_batch_are_offered_first_where_it_is_last() -> None:
    asked: dict[str, tuple[Any, ...]] = {}

    def choose(name: str, options: tuple[Any, ...]) -> Any:
        asked[name.split(".")[2]] = options
        return first_option(name, options)

    graph = product("mkb,knb->mnb", {"b": 40, "m": 12, "k": 30, "n": 8})
    launch = CpuLaunchSpace().choose(graph, whole(graph), choose, "")
    assert asked["batch_lanes"] == (True, False) and "pack" not in asked
    assert error(graph, launch) < 1e-5
    asked.clear()
    graph = product("mbk,kbn->mbn", {"b": 40, "m": 12, "k": 30, "n": 8})
    CpuLaunchSpace().choose(graph, whole(graph), choose, "")
    assert "batch_lanes" not in asked
