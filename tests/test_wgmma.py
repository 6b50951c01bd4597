"""Products by warpgroups: right on the emulator, whose faults are seen, and compiled for sm_90a."""

from __future__ import annotations

from itertools import product

import pytest

from autofuse.backends.base import Source
from autofuse.backends.cuda.build import build_flags, watched
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import EmulatorError
from autofuse.kernel.cuda.wgmma import (
    BOXING,
    FETCHING,
    GATHERING,
    GROUP,
    REGISTERS,
    WIDTHS,
    GroupFactor,
    registers,
)
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops import index as ix
from autofuse.plan.parameters import GROUP_MMA, HALF_MMA, NO_MMA, LaunchSettingError, Setting
from benchmarks.sass import kernel_code
from benchmarks.sass_tensor import BY_GROUP, decoded, generated, run_facts, square_product
from search_spaces import CudaLaunchSpace
from tests.support.emulation import library_of, one_kernel
from tests.support.grouped_products import grouped
from tests.support.mma_cases import program
from tests.support.mma_runs import LAYOUTS, difference
from tests.support.planted import all_are_seen, body, changed
from tests.support.tile_programs import whole

# BPT.TRAP.
TRAP = 0x95C


SETTINGS: tuple[dict[str, Setting], ...] = (
    {"stages": 2},
    {"stages": 4, "micro": "128x64", "column_block": 64, "row_block": 256, "grid": "stride"},
    {"threads": 256, "micro": "64x128", "row_block": 64},
    {"threads": 256, "micro": "128x128", "blocks": 2},
    {"threads": 512, "term_block": 64},
)


def test_operands_in_all_orders_are_right() -> None:
    kernels = [grouped(name, dtype) for name in LAYOUTS for dtype in ("bf16", "f16")]
    kernels += [grouped("epilogue", **settings) for settings in SETTINGS]
    library = library_of(kernels)
    for one in kernels:
        assert "af_multiply_group" in body(one) and "af_copy_ahead" in body(one)
        assert difference(library, one)[0] < 2e-2


def test_products_of_all_widths_are_right_and_compile_without_a_word() -> None:
    wide: dict[str, Setting] = {"micro": "64x256", "row_block": 64, "column_block": 256}
    kernels = [
        grouped(name, dtype, (70, columns, 72), **{**wide, "threads": 256, "stages": 2})
        for columns, name, dtype in zip(
            (30, 60, 90, 128, 190, 256), LAYOUTS + LAYOUTS[:2], ("bf16", "f16") * 3, strict=True
        )
    ]
    library = library_of(kernels)
    for one, width in zip(kernels, WIDTHS, strict=True):
        assert f"16, {width}, " in body(one) and difference(library, one)[0] < 2e-2
    text = "\n".join([CUDA.prelude, *map(body, kernels)])
    assert compile_cubin(text, "sm_90a")[1] == ""


TAILS: tuple[dict[str, Setting], ...] = (
    {"tail": 2, "wave": 5},
    {"tail": 4, "wave": 64},
    {"tail": 4, "wave": 5, "grid": "stride"},
    {"tail": 2, "wave": 7, "mma": HALF_MMA, "threads": 64, "micro": "32x64", "row_block": 32},
    {
        "tail": 2,
        "wave": 8,
        "mma": NO_MMA,
        "threads": 64,
        "micro": "32x32",
        "row_block": 32,
        "column_block": 32,
    },
)


@pytest.mark.slow
def test_tiles_of_the_last_wave_are_summed_in_parts() -> None:
    """The same bits whatever the order of blocks, also where rows and columns are left over."""
    shape: dict[str, Setting] = {"micro": "128x64", "row_block": 128, "column_block": 64}
    kernels = [
        grouped("epilogue", sizes=(136, 200, 456), **{**shape, **settings}) for settings in TAILS
    ]
    library = library_of(kernels)
    for one in kernels:
        assert body(one).count("af_is_last") in (2, 4)  # rows and columns left over have texts
        assert difference(library, one)[0] < 2e-2
    first = kernels[0]
    faulty = [
        changed(first, "no_meeting", "af_is_last(tickets, t1, 2)", "t2 == 1"),
        changed(first, "a_part_missing", "p < 2; p++", "p < 1; p++"),
    ]
    library = library_of(faulty)
    for each in faulty:
        with pytest.raises((EmulatorError, AssertionError)):
            assert difference(library, each)[0] < 2e-2


def test_a_last_wave_that_is_short_is_offered_in_parts() -> None:
    graph = program("epilogue", (128 * (132 * 4 + 10), 256, 4096), "bf16")
    chosen = dict(CudaLaunchSpace(TARGETS["H100"]).choose(
        graph, whole(graph), lambda _, options: next(o for o in options if o != "blas"), "p"
    ).settings)  # fmt: skip
    assert chosen["micro"] == "256x128" and (chosen["tail"], chosen["wave"]) == (4, 132)


@pytest.mark.parametrize(("rows", "threads"), [(64, 256), (128, 384)])
def test_no_warpgroup_is_idle_where_rows_are_few(rows: int, threads: int) -> None:
    graph = program("product", (rows, 4096, 4096), "bf16")
    chosen = dict(CudaLaunchSpace(TARGETS["H100"]).choose(
        graph, whole(graph), lambda _, options: next(o for o in options if o != "blas"), "p"
    ).settings)  # fmt: skip
    assert (chosen["mma"], chosen["threads"]) == (GROUP_MMA, threads)


def test_warpgroups_are_not_offered_where_no_tile_of_theirs_has_room() -> None:
    """A left operand that is computed is kept with all its terms."""
    graph = program("prologues", (2048, 2048, 2048), "bf16")
    chosen = CudaLaunchSpace(TARGETS["H100"]).default(graph, whole(graph))
    assert dict(chosen.settings)["mma"] == HALF_MMA
    assert one_kernel(graph, chosen).unit.geometry.shared <= TARGETS["H100"].shared_per_block


# Names of what is wrong: what stands in the text, and what instead.
FULL, EMPTY = (
    "af_await(af_full + af_slot, af_phase);",
    "af_await(af_empty + af_slot, af_phase ^ 1u);",
)
FAULTS = {
    "no_wait_for_a_run": (FULL, ""),
    "wrong_phase_of_a_run": (FULL, FULL.replace("phase", "phase ^ 1u")),
    "no_wait_for_a_place": (EMPTY, ""),
    "wrong_phase_of_a_place": (EMPTY, EMPTY.replace(" ^ 1u", "")),
    "no_wait_for_copies": ("af_await_copies(1);", ""),
    "no_groups_of_copies": ("af_end_copies();", ""),
    "stores_not_shown": ("af_show_stores();", ""),
    "no_fence_before_products": ("af_group_fence();", ""),
    "no_groups_of_products": ("af_group_commit();", ""),
    "no_wait_for_products": ("af_group_await(0);", ""),
    "place_given_back_early": ("af_group_await(1);\n", "af_group_await(2);\n"),
    "another_place_given_back": ("af_arrive(af_empty + done)", "af_arrive(af_empty + af_slot)"),
    "exchanged_otherwise": ("^ (line & 7)", "^ (line & 3)"),
    "not_at_a_block": (" + af_to_block(room) / 2", ""),
    "blocks_too_near": (", 1024)", ", 512)"),
    "rows_side_by_side_too_near": ("8192, 1024", "4096, 1024"),
    "half_a_step": ("s * 32", "s * 16"),
    "not_turned": ("bf16, 96, 0, 1", "bf16, 96, 0, 0"),
    "one_term_less": ("terms = 264;", "terms = 263;"),
    "one_run_less": ("r < runs; r++", "r < runs - 1; r++"),
    "no_meeting_before_sums": ("af_meet(384);", ""),
}  # fmt: skip


def test_planted_faults_are_seen() -> None:
    one = grouped("product")
    all_are_seen(one, FAULTS, lambda library, kernel: difference(library, kernel)[0] < 2e-2)


@pytest.mark.parametrize("strides", [(1000, 1), (1, 1000)])
def test_pieces_have_places_of_their_own(strides: tuple[int, int]) -> None:
    for padded in (64, 128, 192, 256):
        o = GroupFactor(Panel("x", ix.lit(0), 1), *strides, padded, padded, 64, 2)
        places = {
            eval(o.place(str(line), str(piece)).replace("/", "//"))
            for line in range(o.lines)
            for piece in range(o.pieces)
        }
        assert places == set(range(0, o.size, o.lanes))


def test_what_cannot_be_is_refused() -> None:
    for threads, micro in ((128, "64x64"), (192, "64x64"), (384, "128x512")):
        with pytest.raises(LaunchSettingError):
            grouped("product", sizes=(512, 512, 64), threads=threads, micro=micro)


def test_threads_get_no_more_registers_than_the_launch_allocated() -> None:
    for threads, blocks, fetching in product(
        (256, 384, 512), (1, 2), (FETCHING, GATHERING, BOXING)
    ):
        own, groups = registers(threads, blocks, fetching), threads // GROUP
        assert own.fetching + (groups - 1) * own.multiplying <= own.first * groups or not own.change
        assert own.first * threads * blocks <= REGISTERS
    assert registers(384, 1).multiplying >= 128 + 64


@pytest.mark.parametrize("device", ["A100", "H100", "B200"])
def test_first_runs_are_stopped_where_they_would_hang(device: str) -> None:
    """A trap, and the device's clock, where somebody waits for an mbarrier or for other blocks."""
    target = TARGETS[device]
    waits = 'extern "C" __global__ void k(uint32_t *t) { af_wait_for_all(t, 0, 4, true); }'
    rings = 'extern "C" __global__ void k(uint64_t *t) { af_await(t, 0); }'
    for text in (waits, rings):
        source = Source("k", f"{CUDA.prelude}\n{text}", ("--std=c++17",))
        traps = []
        for each in (source, watched(source)):
            cubin, _ = compile_cubin(each.text, target.code_for, build_flags(each))
            made = [i.operation for i in decoded(kernel_code(cubin, "k"))]
            traps.append(made.count(TRAP))
        assert traps == [0, 1]


# What roles ask for, and what a block of 3 x 168 registers for each triple of lanes cannot do.
DEALS = {
    "more_than_there_are": ("af_take_registers(208);", "af_take_registers(240);"),
    "nothing_given": ("af_give_registers(88);", ""),
    "too_little_given": ("af_give_registers(88);", "af_give_registers(96);"),
    "not_given_back": ("af_give_registers(168);", ""),
}


def test_registers_that_nobody_gives_are_a_deadlock() -> None:
    one = grouped("product")
    all_are_seen(one, DEALS, lambda library, kernel: difference(library, kernel)[0] < 2e-2)
    faulty = changed(one, "pool", *DEALS["too_little_given"])
    with pytest.raises(EmulatorError, match=r"deadlock: .* wait for registers: .* began with 168"):
        difference(library_of([faulty]), faulty)


def test_the_default_on_hopper_spills_nothing() -> None:
    graph, target = program("epilogue", (4096, 4096, 4096), "bf16"), TARGETS["H100"]
    default = CudaLaunchSpace(target).default(graph, whole(graph))
    assert target.code_for == "sm_90a" and dict(default.settings)["mma"] == GROUP_MMA
    unit, launch = generated(square_product(4096), target)
    source = unit.source
    cubin, log = compile_cubin(source.text, target.code_for, build_flags(source))
    said = parse_log(log)[source.name]
    assert said.spilled == 0 and said.registers == registers(384, 1).first
    # Nothing has been given up: the compiler says so where it orders products one after another, or
    # leaves registers where they are.
    assert "serialized" not in log and "setmaxnreg" not in log
    made = [i.operation for i in decoded(kernel_code(cubin, source.name))]
    run = run_facts(made, launch)
    assert run.products == 8 and run.multiply_adds == 128 * 256 * 64
    assert made.count(BY_GROUP) == 8 and run.copied == (128 + 256) * 64 * 2
