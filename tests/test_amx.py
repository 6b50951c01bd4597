"""Products of bf16 by AMX: the instructions where they are, and everywhere their model in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import trace
from autofuse.backends import library, machine
from autofuse.backends.base import AMX_USED, LaunchError
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.backend import program as program_of
from autofuse.backends.library import load
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.emit import LoweringError
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.parameters import LaunchConfig
from autofuse.plan.types import Candidate, FusionPlan
from search_spaces import CpuLaunchSpace
from search_spaces.launch import first_option
from tests.support.batching import at_level
from tests.support.pairs import launch_of, product
from tests.support.seeds import examples
from tests.support.tile_programs import program, whole

MODEL = "-DAF_MODEL_AMX"
# As this machine does it, and as the model does, which is one where there are no tiles.
WAYS = [(), (MODEL,)] if machine.multiplies_tiles() else [(MODEL,)]
Change = Callable[[str], str]


def amx(**chosen: int | str | bool) -> LaunchConfig:
    return launch_of(**{"pairs": False, "mma": "amx", "micro": "32x32", **chosen})


def run(
    graph: Graph, inputs: tuple[np.ndarray, ...], launch: LaunchConfig, way: tuple[str, ...],
    change: Change = str,
) -> tuple[Any, ...]:  # fmt: skip
    """Results of one kernel whose text may have been changed."""
    made = program_of(graph, Candidate(FusionPlan((whole(graph),)), (launch,)))
    sources = (at_level(replace(s, text=change(s.text)), "-O1") for s in made.sources)
    flagged = tuple(replace(s, flags=(*s.flags, *way)) for s in sources)
    with load(compile_program(replace(made, sources=flagged)).artifact) as loaded:
        return tuple(loaded.run(inputs))


@settings(max_examples=examples(12), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 70), st.integers(1, 150), st.integers(2, 150)),
    left=st.booleans(),
    right=st.booleans(),
    micro=st.sampled_from(("32x32", "16x64", "16x32", "28x16", "6x64", "8x48")),
    blocks=st.tuples(*(st.sampled_from(c) for c in ((32, 128), (0, 64), (0, 32, 40)))),
    pack_left=st.booleans(),
    threads=st.sampled_from((1, 2)),
    way=st.sampled_from(WAYS),
)
def test_products_of_any_size_are_right(
    sizes: tuple[int, int, int], left: bool, right: bool, micro: str, blocks: tuple[int, int, int],
    pack_left: bool, threads: int, way: tuple[str, ...],
) -> None:  # fmt: skip
    graph = product(*sizes, left, right)
    inputs = random_inputs(graph, 3)
    rows, columns, terms = blocks
    launch = amx(
        micro=micro, row_block=rows, column_block=columns, term_block=terms, pack_left=pack_left,
        threads=threads,
    )  # fmt: skip
    assert check(run(graph, inputs, launch, way), reference_of(graph, inputs)).ok


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["epilogue"])
def test_what_is_around_a_product_is_right(name: str, way: tuple[str, ...]) -> None:
    graph = program(name, "bf16")
    inputs = random_inputs(graph, 3)
    for launch in (amx(), amx(pack_left=True)):
        found = run(graph, inputs, launch, way)
        for got, want in zip(found, evaluate(graph, inputs), strict=True):
            apart = np.abs(got.astype(np.float64) - want)
            assert np.max(apart) <= 2e-2 * max(1.0, float(np.max(np.abs(want))))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("launch", [amx(prepack=True), launch_of(prepack=True)])
def test_weights_are_packed_once(launch: LaunchConfig, way: tuple[str, ...]) -> None:
    shapes = spec((20, 51), "bf16"), spec((51, 70), "bf16", constant=True)
    graph = canonical(trace(lambda a, b: a @ b * 2, *shapes))
    a, b = random_inputs(graph, 3)
    made = program_of(graph, Candidate(FusionPlan((whole(graph),)), (launch,)))
    assert made.binding.held
    flagged = tuple(replace(s, flags=(*s.flags, *way)) for s in made.sources)
    with load(compile_program(replace(made, sources=flagged)).artifact) as loaded:
        loaded.prepare((b,))
        assert check(loaded.run((a,)), reference_of(graph, (a, b))).ok


FAULTS: dict[str, Change] = {
    "interleave": lambda text: text.replace("+ l0 * 2 + 1]", "+ l0 * 2 + 2]"),
    "factors": lambda text: text.replace("0, 4, 6);", "0, 4, 7);"),
    "sums": lambda text: text.replace("tc + 16,", "tc + 0,"),
    "rest": lambda text: text.replace("if (te % 32)", "if (0)"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, way: tuple[str, ...]) -> None:
    graph = product(32, 70, 64, False, False)
    inputs = random_inputs(graph, 3)
    changed: list[bool] = []

    def change(text: str) -> str:
        changed.append(FAULTS[fault](text) != text)
        return FAULTS[fault](text)

    assert not check(run(graph, inputs, amx(), way, change), reference_of(graph, inputs)).ok
    assert any(changed)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("pack_left", [False, True])
def test_only_what_is_in_a_row_reaches_its_sums(way: tuple[str, ...], pack_left: bool) -> None:
    """What is infinite or no number stays in its row and column, also behind the last term."""
    graph = product(5, 37, 40, False, False)
    a, b = (x.copy() for x in random_inputs(graph, 3))
    a[1, 0], a[3, 36], b[36, 7] = np.nan, np.inf, np.nan
    (found,) = run(graph, (a, b), amx(pack_left=pack_left), way)
    with np.errstate(invalid="ignore"):
        (wanted,) = evaluate(graph, (a, b))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found.astype(np.float32)), np.isinf(wanted))


@pytest.mark.parametrize(("by", "able"), [("amx", False), ("amx", True)])
def test_tiles_are_offered_where_the_processor_has_them(by: str, able: bool) -> None:
    asked: dict[str, tuple[Any, ...]] = {}

    def choose(name: str, options: tuple[Any, ...]) -> Any:
        asked[name.split(".")[2]] = options
        return first_option(name, options)

    space = CpuLaunchSpace(512, pairs=True, amx=able)
    for dtype, wanted in (("bf16", (by, "none") if able else ()), ("f32", ())):
        asked.clear()
        graph = program("epilogue", dtype)
        chosen = space.choose(graph, whole(graph), choose, "")
        assert asked.get("mma", ()) == wanted
        assert (chosen.get("mma", "none") == by) == bool(wanted)
        assert ("pairs" in asked) == (dtype == "bf16" and not able)


def test_sums_that_no_tiles_are_left_for_are_refused() -> None:
    graph = product(70, 40, 150, False, False)
    with pytest.raises(LoweringError, match="no tiles for 28 x 48 sums"):
        program_of(graph, Candidate(FusionPlan((whole(graph),)), (amx(micro="28x48"),)))


def test_a_process_that_may_not_use_tiles_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Loaded:
        pass

    loaded: Any = _Loaded()
    monkeypatch.setattr(library, "has_tiles", lambda: True)
    monkeypatch.setattr(library, "multiplies_tiles", lambda: False)
    library._ask_for_tiles(loaded)  # it uses none
    setattr(loaded, AMX_USED, ctypes.c_int32(1))
    with pytest.raises(LaunchError, match="AMX"):
        library._ask_for_tiles(loaded)
