"""Products of bf16 in pairs of terms, and halves that are converted in vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Local, TileProduct, Transpose, statements
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.passes import C_PASSES, exact_copies, run_passes
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.plan.parameters import MICRO, LaunchConfig
from autofuse.plan.types import Candidate, FusionPlan
from search_spaces import CpuLaunchSpace
from search_spaces.launch import first_option
from tests.support.batching import quick_library
from tests.support.pairs import launch_of, product
from tests.support.seeds import examples
from tests.support.tile_programs import PROGRAMS, program, whole


def run(graph: Graph, inputs: tuple[np.ndarray, ...], launch: LaunchConfig) -> tuple[Any, ...]:
    candidate = Candidate(FusionPlan((whole(graph),)), (launch,))
    return quick_library(graph, candidate).run(inputs)


def tiles(graph: Graph, launch: LaunchConfig) -> list[TileProduct]:
    kernel = lower(extract(graph, whole(graph))[0], launch)
    return [s for s in statements(kernel.body) if isinstance(s, TileProduct)]


@settings(max_examples=examples(15), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 70), st.integers(1, 150), st.integers(2, 150)),
    left=st.booleans(),
    right=st.booleans(),
    micro=st.sampled_from(MICRO.choices),
    row_block=st.sampled_from((8, 20, 128)),
    column_block=st.sampled_from((0, 64)),
    term_block=st.sampled_from((0, 32, 33)),
    bits=st.sampled_from((512, 256, 128)),
    threads=st.sampled_from((1, 2)),
)
def test_products_of_any_size_are_right(
    sizes: tuple[int, int, int], left: bool, right: bool, micro: str, row_block: int,
    column_block: int, term_block: int, bits: int, threads: int,
) -> None:  # fmt: skip
    graph = product(*sizes, left, right)
    inputs = random_inputs(graph, 3)
    launch = launch_of(
        micro=micro, row_block=row_block, column_block=column_block, term_block=term_block,
        vector_bits=bits, threads=threads,
    )  # fmt: skip
    assert check(run(graph, inputs, launch), reference_of(graph, inputs)).ok


@pytest.mark.parametrize(("terms", "turned"), [(150, True), (151, False)])
def test_pairs_that_lie_along_terms_are_packed_through_registers(terms: int, turned: bool) -> None:
    graph = product(20, terms, 150, False, True)
    kernel = run_passes(lower(extract(graph, whole(graph))[0], launch_of()), C_PASSES)
    pairs = [s for s in statements(kernel.body) if isinstance(s, Transpose) and s.source.inner == 2]
    assert [s.rows for s in pairs] == [ix.lit(64), ix.lit(22)] * turned
    inputs = random_inputs(graph, 5)
    assert check(run(graph, inputs, launch_of()), reference_of(graph, inputs)).ok


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("term_block", [0, 32])
def test_halves_that_lie_along_terms_are_made_wide_from_copies(
    dtype: str, rows: int, term_block: int
) -> None:
    shapes = (spec((rows, 75), dtype), spec((150, 75), dtype))
    graph = canonical(trace(lambda a, b: a @ b.T, *shapes))
    launch = launch_of(pairs=False, term_block=term_block)
    kernel = run_passes(lower(extract(graph, whole(graph))[0], launch), C_PASSES)
    made = [s for s in statements(kernel.body) if isinstance(s, Transpose)]
    assert [(s.rows, s.source.outer) for s in made] == [(ix.lit(64), 75), (ix.lit(22), 75)]
    inputs = random_inputs(graph, 5)
    assert check(run(graph, inputs, launch), reference_of(graph, inputs)).ok


@pytest.mark.wide(10)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_is_right(name: str) -> None:
    graph = program(name, "bf16")
    inputs = random_inputs(graph, 3)
    for got, want in zip(run(graph, inputs, launch_of()), evaluate(graph, inputs), strict=True):
        apart = np.abs(got.astype(np.float64) - want)
        assert np.max(apart) <= 2e-2 * max(1.0, float(np.max(np.abs(want))))


@pytest.mark.parametrize("terms", [7, 8])
def test_only_what_is_in_a_row_reaches_its_sums(terms: int) -> None:
    """What is infinite or no number stays in its row and column, also behind an odd last term."""
    graph = product(5, terms, 40, False, False)
    a, b = (x.copy() for x in random_inputs(graph, 3))
    a[1, 0], a[3, terms - 1], b[terms - 1, 7] = np.nan, np.inf, np.nan
    (found,) = run(graph, (a, b), launch_of())
    with np.errstate(invalid="ignore"):
        (wanted,) = evaluate(graph, (a, b))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found.astype(np.float32)), np.isinf(wanted))


def test_factors_stay_narrow() -> None:
    graph = product(40, 60, 96, False, False)
    assert {t.dtype for t in tiles(graph, launch_of())} == {DType.BF16}
    assert {t.left.buffer for t in tiles(graph, launch_of())} == {"in0"}
    assert {t.dtype for t in tiles(graph, launch_of(pairs=False))} == {DType.F32}
    kernel = lower(extract(graph, whole(graph))[0], launch_of())
    panels = {
        s.dtype for s in statements(kernel.body) if isinstance(s, Local) and "panel" in s.name
    }
    assert panels == {DType.BF16}
    halves = canonical(trace(lambda a, b: a @ b * 2, spec((8, 9), "f16"), spec((9, 20), "f16")))
    assert {t.dtype for t in tiles(halves, launch_of())} == {DType.F32}


@pytest.mark.parametrize("able", [False, True])
def test_pairs_are_offered_where_the_processor_multiplies_them(able: bool) -> None:
    asked: dict[str, tuple[Any, ...]] = {}

    def choose(name: str, options: tuple[Any, ...]) -> Any:
        asked[name.split(".")[2]] = options
        return first_option(name, options)

    space = CpuLaunchSpace(512, pairs=able)
    for dtype, wanted in (("bf16", (True, False) if able else ()), ("f32", ())):
        asked.clear()
        graph = program("epilogue", dtype)
        space.choose(graph, whole(graph), choose, "")
        assert asked.get("pairs", ()) == wanted


def test_halves_that_are_only_moved_are_copied() -> None:
    graph = canonical(trace(lambda x: x[::-1], spec((30, 40), "f16")))
    kernel = lower(extract(graph, whole(graph))[0], LaunchConfig.of(threads=1, tile=64))
    assert "cast" not in str(kernel) and exact_copies(kernel) == kernel


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_every_half_is_made_wide_and_narrow_again(dtype: str) -> None:
    """All 65536, three times and half as large: rounded as NumPy rounds, also to infinity."""
    graph = canonical(trace(lambda x: (x * 3, x * 0.5), spec(1 << 16, dtype)))
    kind = graph.input_types[0].dtype.numpy
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    found = run(graph, (every,), LaunchConfig.of(threads=1, tile=1024))
    wide = every.astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for got, want in zip(found, (wide * 3, wide * np.float32(0.5)), strict=True):
            np.testing.assert_array_equal(got.astype(np.float32), want.astype(kind).astype("f4"))
