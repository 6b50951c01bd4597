"""Products of whole numbers as tiles: exact on tensor cores in the emulator, compiled by NVRTC, and
in C."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings

from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS, blocks_resident
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.cost.work import group_work, kind_of_arithmetic
from autofuse.frontends import array_api as xp
from autofuse.frontends.onnx.read import OnnxFile, import_onnx
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.kernel.cuda import shape as cuda_shape
from autofuse.measure.calibrate.cuda import target_calibration
from autofuse.plan.fusion.clusters import live
from autofuse.plan.parameters import BYTE_MMA, NO_MMA
from autofuse.plan.types import Candidate, FusionPlan, LaunchConfig, Setting
from search_spaces import CudaLaunchSpace
from tests.support.batching import quick_library
from tests.support.byte_products import (
    PROGRAMS,
    Case,
    drawn_launch,
    exact,
    options_of,
    program,
    wide,
)
from tests.support.emulation import OneKernel, library_of, one_kernel
from tests.support.onnx_models import model, node
from tests.support.planted import all_are_seen, body
from tests.support.seeds import seeds
from tests.support.tile_launches import SETTINGS, launch_of
from tests.support.tile_programs import whole

MICRO = ((16, 32), (16, 64), (32, 32), (32, 64), (64, 32), (64, 64), (64, 128))


def drawn(seed: int) -> Case:
    """Sizes that are whole pieces, or not; settings that matter to tensor cores."""

    def chosen(r: random.Random) -> dict[str, Setting]:
        rows, columns = r.choice(MICRO)
        return {
            "mma": BYTE_MMA, "threads": r.choice((32, 64, 128)),
            "stages": r.choice((0, 2, 3, 4)), "micro": f"{rows}x{columns}",
            "row_block": rows * r.choice((1, 2)), "column_block": columns * r.choice((0, 1, 2)),
        }  # fmt: skip

    return drawn_launch(seed, chosen)


def right(cases: list[Case]) -> int:
    library = library_of([case.one for case in cases])
    for case in cases:
        assert exact(library, case.one)[0], case.name
    return sum("af_multiply_" in body(case.one) for case in cases)


def test_drawn_products_of_bytes_are_exact() -> None:
    assert right([drawn(seed) for seed in seeds(8)]) == 8


@pytest.mark.slow
def test_many_drawn_products_of_bytes_are_exact() -> None:
    assert right([drawn(seed) for seed in seeds(400)]) == 400


USUAL: dict[str, Setting] = {
    "impl": "loops", "mma": BYTE_MMA, "threads": 64, "micro": "32x64", "row_block": 32,
    "column_block": 64, "stages": 3,
}  # fmt: skip


def made(name: str, micro: str = "32x64") -> OneKernel:
    rows, columns = map(int, micro.split("x"))
    chosen = {**USUAL, "micro": micro, "row_block": rows, "column_block": columns}
    return one_kernel(program(name, (48, 80, 112), ("u8", "i8")), LaunchConfig.of(**chosen))


@pytest.mark.parametrize("name", ["product", "right turned", "left turned", "both turned"])
def test_no_two_rows_of_bytes_that_are_loaded_at_once_are_in_the_same_banks(name: str) -> None:
    kernels = [made(name, micro) for micro in ("16x32", "32x64", "64x128")]
    library = library_of(kernels)
    for one in kernels:
        assert "af_copy_ahead" in body(one)
        assert exact(library, one) == (True, 0)


FAULTS = {
    "without_sign": ("af_multiply_u8_i8", "af_multiply_u8_u8"),
    "with_sign": ("af_multiply_u8_i8", "af_multiply_i8_i8"),
    "not_turned": ("af_turn_pairs_columns(b[0][i]);", ""),
    "turned_as_rows": ("af_turn_pairs_columns(b[0][i]);", "af_turn_pairs_rows(b[0][i]);"),
    "neighbours_swapped": ("lane / 8 % 2 * 2 + lane % 2", "lane / 8 % 2 + lane % 2 * 2"),
    "columns_of_floats": ("lane % 4 * 4 + j % 2 * 2", "lane % 4 * 2 + j % 2 * 8"),
    "no_wait": ("af_await_copies(1);", ""),
    "one_term_less": ("terms = 112;", "terms = 111;"),
}


def test_planted_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_shape, "STATIC_SHARED", 0)  # where the emulator sees races
    one = made("product")
    all_are_seen(one, FAULTS, lambda library, kernel: exact(library, kernel)[0])


# --- what is offered ------------------------------------------------------------------------------


def test_they_are_offered_to_bytes_that_are_read_as_such() -> None:
    assert options_of(program("narrow result", (512, 512, 64), ("u8", "i8"))) == (BYTE_MMA, NO_MMA)
    filled = trace(
        lambda a, b, c: xp.concat([wide(a), wide(b)], axis=1) @ wide(c),
        spec((64, 32), "i8"), spec((64, 32), "i16"), spec((64, 32), "i8"),
    )  # fmt: skip
    assert BYTE_MMA not in options_of(canonical(filled))
    plain = trace(lambda a, b: a @ b, spec((64, 64), "i32"), spec((64, 64), "i32"))
    assert options_of(canonical(plain)) == ()


def test_an_onnx_product_of_integers_is_one() -> None:
    made_of = [("a", 2, (64, 96)), ("b", 3, (96, 48))]
    onnx_model = model([node("MatMulInteger", ["a", "b"], ["y"])], made_of, [("y", 6, (64, 48))])
    graph = canonical(import_onnx(OnnxFile(onnx_model)).graph)
    assert options_of(graph) == (BYTE_MMA, NO_MMA)


@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
def test_defaults_spill_nothing_and_leave_room_for_two_blocks(device: str) -> None:
    graph, target = program("narrow result", (4096, 4096, 4096), ("u8", "i8")), TARGETS[device]
    default = CudaLaunchSpace(target).default(graph, whole(graph))
    one = one_kernel(graph, default)
    source, shape = one.unit.source, one.unit.geometry
    log = compile_cubin(source.text, target.code_for, build_flags(source))[1]
    facts = parse_log(log)[source.name]
    assert dict(default.settings)["mma"] == BYTE_MMA and facts.spilled == 0
    shared = shape.shared + facts.shared
    assert blocks_resident(target, shape.block, facts.registers, shared) >= 2


def test_a_bound_counts_them_at_their_own_peak() -> None:
    graph, target = program("both turned", (64, 64, 64), ("i8", "i8")), TARGETS["A100"]
    kinds = {kind_of_arithmetic(graph, n) for n in live(graph)}
    work = group_work(graph, live(graph), graph.outputs)
    assert "byte" in kinds and work.byte == work.products == 2 * 64**3
    peaks = target_calibration(target)
    assert peaks.byte == 2 * peaks.narrow == target.peaks["byte"]
    assert peaks.compute_us(work) >= work.byte / peaks.byte / 1e3


# --- C --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=1, deadline=None)
@given(chosen=SETTINGS)
def test_tiles_of_whole_numbers_are_exact_in_c(
    name: str, chosen: dict[str, int | str | bool]
) -> None:
    graph = program(name, (37, 75, 70), ("u8", "i8"))
    candidate = Candidate(FusionPlan((whole(graph),)), (launch_of(**chosen),))
    inputs = random_inputs(graph, 3)
    found = quick_library(graph, candidate).run(inputs)
    for got, wanted in zip(found, evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(got, wanted)
