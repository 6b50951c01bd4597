"""Warpgroups that have tiles of their own and take turns: right on the emulator, whose faults are
seen, and compiled for sm_90a."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest

from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import EmulatorError
from autofuse.plan.parameters import GROUP_MMA, Setting
from benchmarks.tensor_model import Blocks, RunFacts, tensor_share
from search_spaces import CudaLaunchSpace
from tests.support.emulation import OneKernel, library_of
from tests.support.mma_cases import program
from tests.support.mma_runs import LAYOUTS, difference, made
from tests.support.planted import all_are_seen, body, changed
from tests.support.seeds import seeds
from tests.support.tile_programs import whole

USUAL: dict[str, Setting] = {
    "mma": GROUP_MMA, "threads": 384, "micro": "64x64", "row_block": 64, "column_block": 64,
    "stages": 3, "pingpong": True, "grid": "one",
}  # fmt: skip

SIZES = 328, 192, 264


def in_turns(
    name: str, dtype: str = "bf16", sizes: tuple[int, int, int] = SIZES, blocks: int = 2,
    **settings: Setting,
) -> OneKernel:  # fmt: skip
    """A kernel of so many blocks, which go from tile to tile."""
    one = made(name, dtype, sizes, **{**USUAL, **settings})
    unit, shape = one.unit, one.unit.geometry
    if "af_turn" not in body(one):
        return one
    return replace(one, unit=replace(unit, geometry=replace(shape, grid=min(blocks, shape.grid))))


SETTINGS: tuple[dict[str, Setting], ...] = (
    {"stages": 2},
    {"stages": 4, "micro": "128x64", "row_block": 128},
    {"threads": 512, "vector": 4},
    {"threads": 256},
    {"micro": "64x128", "column_block": 128, "vector": 4, "stages": 5},
)


@pytest.mark.slow
def test_products_of_groups_that_take_turns_are_right() -> None:
    # Every layout, and every type: which of a pair does not matter to who takes turns.
    kernels = [in_turns(name, dtype) for name, dtype in zip(LAYOUTS, cycle(("bf16", "f16")))]
    kernels += [in_turns("epilogue", "bf16", SIZES, 2, **settings) for settings in SETTINGS[:-1]]
    kernels += [in_turns("epilogue", "bf16", (200, 256, 136), 2, **SETTINGS[-1])]
    # Tiles that static memory had room for, of which each role has but the text.
    kernels += [in_turns("product", "bf16", (16, 192, 128), 1, stages=2, row_block=64)]
    # More groups than tiles, and runs that are fewer than stages.
    kernels += [in_turns("epilogue", sizes=(60, 64, 40)), in_turns("product", blocks=1)]
    library = library_of(kernels)
    for one in kernels:
        assert "af_turn" in body(one)
        error, conflicts = difference(library, one)
        assert error < 2e-2 and conflicts == 0, one.unit.source.name


NAMES = (
    *LAYOUTS, "result turned", "batch", "batch inside", "batch last", "shared right", "windows",
    "epilogue",
)  # fmt: skip


def drawn(seed: int) -> OneKernel:
    """Any rows and terms, whole tiles of columns, and fewer blocks than tiles."""
    r = random.Random(seed)
    rows, columns = r.choice(((64, 32), (64, 64), (128, 64), (64, 128)))
    step = r.choice((8, 8, 1))
    sizes = step * r.randint(1, 300 // step), columns * r.randint(1, 3), step * r.randint(2, 30)
    return in_turns(
        r.choice(NAMES), r.choice(("bf16", "f16")), sizes, r.randint(1, 4),
        threads=r.choice((256, 384, 512)), micro=f"{rows}x{columns}", row_block=rows,
        column_block=columns, stages=r.choice((2, 3, 4)), vector=r.choice((1, 4)),
    )  # fmt: skip


def check_all(numbers: list[int]) -> None:
    kernels = [drawn(seed) for seed in numbers]
    library = library_of(kernels)
    for seed, one in zip(numbers, kernels, strict=True):
        assert difference(library, one)[0] < 2e-2, seed
    # Of a result that is turned rows are columns, of which some may be left over.
    assert sum("af_turn" in body(one) for one in kernels) > len(kernels) * 3 // 4


def test_drawn_products_of_groups_that_take_turns_are_right() -> None:
    check_all(list(seeds(4)))


@pytest.mark.slow
def test_many_drawn_products_of_groups_that_take_turns_are_right() -> None:
    check_all(list(seeds(60)))


@pytest.mark.wide(3)
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("epilogue", {"sizes": (136, 200, 264)}),  # columns that are left over
        ("row maxima", {}),  # folded by all threads of a block
        ("prologues", {"sizes": (72, 64, 72)}),  # operands that are computed
        ("epilogue", {"tail": 2, "wave": 5}),
        ("epilogue", {"term_block": 64}),
        ("epilogue", {"row_block": 128}),  # several tiles a block
    ],
)
def test_what_a_group_cannot_do_alone_all_do(name: str, settings: dict[str, Any]) -> None:
    given = {"sizes": SIZES, **USUAL, **settings}
    one = made(name, "bf16", **given)
    assert "af_turn" not in body(one)
    assert difference(library_of([one]), one)[0] < 2e-2


TURN, ROOM = "af_await(af_turn + group, turn);", "af_await(af_room + group, turn);"
GIVEN = "if (lane % 32 == 0) af_arrive(af_turn + (group + 1) % 2);"
FAULTS = {
    # A phase of a run is known by its parity: who is early takes another tile's runs for its own.
    "no_turn": (TURN, ""),
    "no_room_for_sums": (ROOM, ""),
    "another_phase_of_room": (ROOM, ROOM.replace("turn)", "turn ^ 1u)")),
    "another_phase_of_a_turn": (TURN, TURN.replace("turn)", "turn ^ 1u)")),
    "no_turn_given": (GIVEN, ""),
    "a_turn_given_twice": (GIVEN, f"{GIVEN} {GIVEN}"),
    "room_given_to_nobody": ("af_arrive(af_room + (group + 1) % 2);", ""),
    "room_given_early": (
        "af_meet_group(1 + threadIdx.x / 128);\n          }",
        "af_meet_group(1 + threadIdx.x / 128); af_arrive(af_room + (group + 1) % 2);\n          }",
    ),
    "no_meeting_of_a_group": ("af_meet_group(1 + threadIdx.x / 128);\n          }", "}"),
    "runs_of_others_not_passed_over": ("af_slot += 1 * runs,", "af_slot += 0 * runs,"),
    "the_first_runs_of_others": ("af_slot += group * runs,", "af_slot += 0 * runs,"),
    "another_phase_after_others": ("af_phase ^= af_slot / 3 & 1", "af_phase ^= 0"),
    "tiles_of_another_group": ("blockIdx.x + group * gridDim.x", "blockIdx.x"),
    "the_last_not_announced": ("while (asked > 0) send();", ""),
    "waits_too_little": ("af_await_copies(1);", "af_await_copies(2);"),
    "a_place_given_back_by_two": (
        "af_ready_init(af_empty + threadIdx.x, 4);", "af_ready_init(af_empty + threadIdx.x, 8);",
    ),
    "sums_over_stages": ("af_shared + 18432", "af_shared + 9216"),
}  # fmt: skip


def test_planted_faults_are_seen() -> None:
    one = in_turns("product")
    all_are_seen(one, FAULTS, lambda library, kernel: difference(library, kernel)[0] < 2e-2)


BOXED = {
    name: FAULTS[name]
    for name in ("no_turn", "no_room_for_sums", "runs_of_others_not_passed_over",
                 "another_phase_after_others", "sums_over_stages")
} | {
    "bytes_that_never_come": ("af_full + af_slot, 16384)", "af_full + af_slot, 16400)"),
    "every_thread_of_a_warp_asks": ("if (lane == 0) {", "if (lane < 32) {"),
    "a_box_of_the_run_before": ("ta0 + begin", "ta0 + begin - 64"),
    "no_wait_for_a_place": ("af_await(af_empty + af_slot, af_phase ^ 1u);", ""),
    "registers_taken_back_early": ("af_meet(384);\n    af_take", "af_take"),
}  # fmt: skip


def test_groups_that_take_turns_may_be_fed_in_boxes() -> None:
    """One thread fetches for all, where both operands have maps."""
    kernels = [in_turns(name, maps=True) for name in ("product", "right turned", "left turned")]
    kernels += [
        in_turns("epilogue", maps=True, stages=2), in_turns("product", maps=True, threads=512),
        in_turns("product", sizes=(60, 64, 40), maps=True), in_turns("batch", maps=True),
        in_turns("product", sizes=(328, 192, 261), maps=True),  # of the right operand alone
    ]  # fmt: skip
    library = library_of(kernels)
    for one in kernels[:-1]:
        assert "af_turn" in body(one) and "af_copy_ahead" not in body(one)
    for one in kernels:
        assert "af_copy_box" in body(one) and difference(library, one)[0] < 2e-2


def test_planted_faults_of_turns_in_boxes_are_seen() -> None:
    one = in_turns("product", maps=True)
    all_are_seen(one, BOXED, lambda library, kernel: difference(library, kernel)[0] < 2e-2)


def test_who_fetches_little_leaves_its_registers_to_the_others() -> None:
    """With fewer runs than stages it is done before anybody has taken them."""
    one = in_turns("product", "bf16", (60, 64, 40), 1)
    early = changed(one, "early", "af_meet(384);\n    af_take", "af_take")
    assert difference(library_of([one]), one)[0] < 2e-2
    with pytest.raises(EmulatorError, match=r"deadlock: .* wait for registers"):
        difference(library_of([early]), early)


def chosen(sizes: tuple[int, int, int]) -> dict[str, Setting]:
    """The settings that a product with what follows it has first on an H100."""
    graph = program("epilogue", sizes, "bf16")
    return dict(CudaLaunchSpace(TARGETS["H100"]).choose(
        graph, whole(graph), lambda _, options: next(o for o in options if o != "blas"), "p"
    ).settings)  # fmt: skip


@pytest.mark.parametrize("terms", [256, 512])
def test_groups_take_turns_where_results_take_as_long_as_products(terms: int) -> None:
    found = chosen((4096, 4096, terms))
    assert found["mma"] == GROUP_MMA and found["pingpong"] and found["micro"] == "128x128"
    assert found["row_block"] == found["column_block"] == 128 and "tail" not in found


def test_groups_share_tiles_of_many_terms_and_columns_that_are_left_over() -> None:
    assert "pingpong" not in chosen((4096, 4096, 4096))
    assert "pingpong" not in chosen((4096, 4090, 256))


def test_the_model_charges_turns_for_the_last_results_alone() -> None:
    run = RunFacts(8, 0, 128 * 128 * 64, 49152, 32768, 1140)
    target, rate = TARGETS["H100"], 4096 / 2
    each = (49152 + 32768) / 128
    for runs, after in ((16, 3000.0), (2, 3000.0)):
        share = tensor_share(target, run, Blocks(1, 2 * target.sms, runs, 1, after, turns=True))
        clocks = 2 * max(runs * each, after) + each + after
        wanted = 2 * runs * run.multiply_adds / rate / clocks
        assert share == pytest.approx(wanted, rel=1e-2)


@pytest.mark.parametrize("micro", ["128x128", "64x256"])
def test_nothing_is_spilled_and_no_product_waits_for_another(micro: str) -> None:
    rows, columns = map(int, micro.split("x"))
    one = made(
        "epilogue", "bf16", (4096, 4096, 1024),
        **{**USUAL, "micro": micro, "row_block": rows, "column_block": columns, "vector": 4},
    )  # fmt: skip
    target, source = TARGETS["H100"], one.unit.source
    assert "af_turn" in body(one)
    _, log = compile_cubin(source.text, target.code_for, build_flags(source))
    assert parse_log(log)[source.name].spilled == 0
    assert "serialized" not in log and "setmaxnreg" not in log and "warning" not in log
