"""Operands that tensor maps copy: right on the emulator, whose faults are seen, and compiled."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autofuse import spec, trace
from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import EmulatorError
from autofuse.backends.emulator.maps import as_argument, encoded
from autofuse.graph.canonical import canonical
from autofuse.kernel.cuda.wgmma import BOXING, GROUP, REGISTERS, registers
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.dtypes import DType
from autofuse.plan.parameters import BYTE_GROUP_MMA, GROUP_MMA, HALF_MMA, MAPS, PINGPONG, Setting
from search_spaces import CudaLaunchSpace
from tests.support.emulation import OneKernel, library_of, one_kernel
from tests.support.grouped_products import grouped
from tests.support.mma_cases import GROUP_MICRO, launch, program
from tests.support.mma_runs import LAYOUTS, difference
from tests.support.planted import all_are_seen, body
from tests.support.seeds import seeds
from tests.support.tile_programs import whole

# Programs of which both operands, one, or none are copied in boxes.
BOTH = (*LAYOUTS, "batch", "batch inside", "epilogue", "gated", "shared right", "result turned")
ONE, NONE = ("left computed", "windows"), ("prologues", "batch last")
USUAL_SIZES = (136, 72, 264)
SETTINGS: tuple[dict[str, Setting], ...] = (
    {"stages": 2},
    {"stages": 4, "micro": "128x64", "column_block": 64, "row_block": 256, "grid": "stride"},
    {"threads": 256, "micro": "64x128", "row_block": 64, "blocks": 2},
    {"threads": 512, "term_block": 64},
    {"tail": 2, "wave": 2, "micro": "128x64", "column_block": 64},
)


def boxed(name: str, dtype: str = "bf16", sizes: tuple[int, int, int] = USUAL_SIZES,
          **settings: Setting) -> OneKernel:  # fmt: skip
    return grouped(name, dtype, sizes, **{"maps": True, **settings})


@pytest.mark.slow
def test_operands_in_boxes_are_right() -> None:
    """Also where rows, columns and terms are left over, which the hardware fills with zeros."""
    kernels = [boxed(name, dtype) for name in BOTH for dtype in ("bf16", "f16")]
    kernels += [boxed("epilogue", "bf16", USUAL_SIZES, **settings) for settings in SETTINGS]
    library = library_of(kernels)
    for one in kernels:
        assert "af_copy_box" in body(one) and "af_copy_ahead" not in body(one)
        assert difference(library, one)[0] < 2e-2


def test_operands_that_are_no_boxes_are_copied_as_before() -> None:
    kernels = [boxed(name) for name in ONE + NONE]
    library = library_of(kernels)
    for one, count in zip(kernels, (1, 1, 0, 0), strict=True):
        assert sum(p.map is not None for p in one.unit.params) == count
        assert difference(library, one)[0] < 3e-2


def test_terms_of_a_part_that_are_no_whole_runs_are_no_boxes() -> None:
    """What a box has beyond them are terms of another part."""
    (one,) = (boxed("product", sizes=(64, 64, 200), term_block=32),)
    assert "af_copy_box" not in body(one)
    assert difference(library_of([one]), one)[0] < 2e-2


def test_bytes_in_boxes_are_right() -> None:
    a, b = spec((70, 272), "i8"), spec((90, 272), "i8")
    made = canonical(trace(lambda a, b: a.astype("i32") @ b.astype("i32").T, a, b))
    settings: dict[str, Setting] = {
        "impl": "loops", "mma": BYTE_GROUP_MMA, "threads": 256, "micro": "64x128", "row_block": 64,
        "column_block": 128, "stages": 3, "maps": True,
    }  # fmt: skip
    one = one_kernel(made, launch(settings))
    assert "af_copy_box_2" in body(one)
    assert difference(library_of([one]), one)[0] == 0


def drawn(seed: int) -> OneKernel:
    """A product of which some operand is copied in boxes, under any settings."""
    r = random.Random(seed)
    name, dtype = r.choice(BOTH + ONE), r.choice(("bf16", "f16"))
    m, n, k = (8 * r.randint(1, 24) for _ in "mnk")
    rows, columns = r.choice(GROUP_MICRO)
    one = boxed(
        name, dtype, (m, n, k), threads=r.choice((256, 384)), micro=f"{rows}x{columns}",
        row_block=rows * r.choice((1, 2)), column_block=columns * r.choice((1, 2)),
        stages=r.choice((2, 3, 4)), grid=r.choice(("one", "stride")),
        term_block=r.choice((0, 0, 64)), tail=r.choice((1, 2)), wave=r.choice((1, 3)),
    )  # fmt: skip
    return one if "af_copy_box" in body(one) else drawn(seed + 1_000_000)


def test_drawn_products_in_boxes_are_right() -> None:
    kernels = [drawn(seed) for seed in seeds(6)]
    library = library_of(kernels)
    for one in kernels:
        assert difference(library, one)[0] < 3e-2, body(one)


@pytest.mark.slow
def test_many_drawn_products_in_boxes_are_right() -> None:
    kernels = [drawn(seed) for seed in seeds(200)]
    library = library_of(kernels)
    for one in kernels:
        assert difference(library, one)[0] < 3e-2, body(one)


# Names of what is wrong: what stands in the text, and what instead.
PAD = "\n" + 16 * " "
EXPECT, BOX = "af_expect_bytes(af_full + af_slot, 32768);", "&map0, ta0 + begin, ta1"
FAULTS = {
    "bytes_not_expected": (EXPECT, EXPECT.replace("32768", "0")),
    "some_bytes_not_expected": (EXPECT, EXPECT.replace("32768", "16384")),
    "more_bytes_expected": (EXPECT, EXPECT.replace("32768", "32784")),
    "coordinates_exchanged": (BOX, "&map0, ta1, ta0 + begin"),
    "another_map": (BOX, BOX.replace("map0", "map1")),
    "the_next_term": (BOX, BOX.replace("begin", "begin + 1")),
    "the_next_row": (BOX, f"{BOX} + 1"),
    "no_run_but_the_first": (BOX, "&map0, ta0, ta1"),
    "one_box_for_all_columns": ("tb0 + n * 64", "tb0"),
    "boxes_in_one_place": ("8192 + n * 4096", "8192"),
    "not_at_a_block": (" + af_to_block(room) / 2", ""),
    "not_exchanged_as_written": ("sa + ((group * 1 + i) * 64) * 128", "sa + 128"),
    "no_wait_for_a_place": ("    af_await(af_empty + af_slot, af_phase ^ 1u);", ""),
    "no_wait_for_a_run": ("af_await(af_full + af_slot, af_phase);", ""),
    "sums_not_shown": ("af_show_stores();", ""),
    "another_stage": ("stage + af_slot * 16384 + 0", "stage + 0"),
    "all_threads_ask": (f"if (lane == 0) {{{PAD}af_await", f"{{{PAD}af_await"),
    "no_meeting_before_sums": ("af_meet(384);", ""),
}  # fmt: skip


def test_planted_faults_are_seen() -> None:
    one = boxed("product", row_block=256, sizes=(392, 72, 264))
    all_are_seen(one, FAULTS, lambda library, kernel: difference(library, kernel)[0] < 2e-2)


MAP_FAULTS: dict[str, dict[str, Any]] = {
    "not_exchanged": {"swizzle": 0},
    "a_box_of_other_sizes": {"box": (64, 64)},
    "rows_further_apart": {"strides": (544,)},
    "terms_beyond_the_last": {"sizes": (272, 392)},
    "fewer_rows": {"sizes": (264, 391)},
    "another_beginning": {"offset": 16},
}


def test_planted_faults_of_maps_are_seen() -> None:
    """What the host says wrong of an operand. One row more is what every other tile has."""
    one = boxed("product", row_block=256, sizes=(392, 72, 264))
    library = library_of([one])
    assert difference(library, one)[0] < 2e-2
    for name, fault in MAP_FAULTS.items():
        params = tuple(
            replace(p, map=replace(p.map, **fault)) if p.map and p.name == "map0" else p
            for p in one.unit.params
        )
        wrong = replace(one, unit=replace(one.unit, params=params))
        with pytest.raises((EmulatorError, AssertionError)):
            assert difference(library, wrong)[0] < 2e-2
            pytest.fail(f"{name} was not seen")


def test_maps_that_no_driver_makes_are_refused() -> None:
    fine = TensorMap(DType.BF16, (100, 50), (208,), (64, 128))
    assert fine.refusal == "" and fine.box_bytes == 64 * 128 * 2
    for wrong in (
        {"strides": (200,)}, {"box": (64, 257)}, {"box": (128, 8)}, {"box": (4, 8)},
        {"offset": 8}, {"sizes": (0, 50)}, {"sizes": (100, 1 << 33)}, {"strides": (0,)},
        {"strides": (1 << 40,)}, {"sizes": (1,) * 6, "strides": (16,) * 5, "box": (8,) * 6},
    ):  # fmt: skip
        assert replace(fine, **wrong).refusal


def offered(space: CudaLaunchSpace, name: str, mma: str = GROUP_MMA, turns: bool = False) -> bool:
    """Whether a choice of maps is given."""
    asked: list[str] = []
    graph = program(name, (512, 512, 512), "bf16")

    def choose(parameter: str, options: tuple[Setting, ...]) -> Setting:
        asked.append(parameter)
        if PINGPONG.name in parameter:
            return turns
        return mma if mma in options else next(o for o in options if o != "blas")

    space.choose(graph, whole(graph), choose, "")
    return any(MAPS.name in parameter for parameter in asked)


def test_maps_are_offered_where_an_operand_has_one_and_a_driver_is_there() -> None:
    space = CudaLaunchSpace(TARGETS["H100"])
    assert offered(space, "product") and offered(space, "left computed")
    assert not offered(space, "prologues") and not offered(space, "product", HALF_MMA)
    assert not offered(CudaLaunchSpace(TARGETS["H100"], maps=False), "product")
    assert not offered(CudaLaunchSpace(TARGETS["A100"]), "product")
    assert offered(space, "product", turns=True)
    graph = program("epilogue", (512, 512, 512), "bf16")
    first = dict(space.default(graph, whole(graph)).settings)
    assert first["maps"] is True, "before copies by pieces"


def test_registers_go_to_those_that_multiply() -> None:
    for threads, blocks in ((256, 1), (256, 2), (384, 1), (512, 1)):
        own = registers(threads, blocks, BOXING)
        taken = own.fetching + (threads // GROUP - 1) * own.multiplying
        assert taken * GROUP * blocks <= REGISTERS
    assert registers(384, 1, BOXING).multiplying == 232


def test_kernels_with_maps_compile_and_spill_nothing() -> None:
    graph, target = program("epilogue", (4096, 4096, 4096), "bf16"), TARGETS["H100"]
    default = dict(CudaLaunchSpace(target).default(graph, whole(graph)).settings)
    for more in ({}, {"stages": 3}):
        one = one_kernel(graph, launch({**default, "maps": True, **more}))
        source = one.unit.source
        _, log = compile_cubin(source.text, target.code_for, build_flags(source))
        said = parse_log(log)[source.name]
        assert said.spilled == 0 and "serialized" not in log and "setmaxnreg" not in log


def test_boxes_of_all_kinds_compile_without_a_word() -> None:
    """Of two and three dimensions, alone and beside pieces."""
    kernels = [boxed(name) for name in ("product", "batch inside", "left computed", "gated")]
    text = "\n".join([CUDA.prelude, *map(body, kernels)])
    for call in ("af_copy_box_2", "af_copy_box_3", "af_expect_more(af_full"):
        assert call in "".join(map(body, kernels))
    assert compile_cubin(text, "sm_90a")[1] == ""


def test_a_map_of_memory_that_is_not_given_is_seen() -> None:
    """As after a call on other addresses that has the map of the last one."""
    one, other = boxed("product"), np.zeros((136, 264), np.uint16)
    library = library_of([one])
    shape, params = one.unit.geometry, one.unit.params
    arrays = [np.zeros(p.size, p.dtype.numpy) for p in params if p.map is None]
    made = [as_argument(encoded(p.map, other.ctypes.data)) for p in params if p.map is not None]
    with pytest.raises(EmulatorError, match="no argument of the kernel"):
        library.launch(
            one.unit.source.name, shape.grid, shape.block, [*arrays, *made], shape.shared
        )
