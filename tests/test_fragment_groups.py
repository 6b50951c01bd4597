"""Attention by warpgroups: right on the emulator, whose faults are seen, compiled for sm_90a."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.kernel.cuda.wgmma import GATHERING, GroupFactor, registers
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.types import Panel
from autofuse.ops import index as ix
from autofuse.plan.parameters import FRAGMENTS, GROUP_MMA, HALF_MMA, MMA, PINGPONG, Setting
from autofuse.plan.types import LaunchConfig
from autofuse.tuning.search.launches import parameter_of
from search_spaces import CudaLaunchSpace
from tests.support.emulation import OneKernel, library_of, one_kernel
from tests.support.fragment_cases import drawn_groups, in_registers, rows_program
from tests.support.fragment_errors import error_of
from tests.support.planted import all_are_seen
from tests.support.seeds import seeds
from tests.support.tile_programs import whole

USUAL: dict[str, Setting] = {
    "mma": GROUP_MMA, "threads": 384, "row_block": 128, "column_block": 64, "stages": 3,
}  # fmt: skip


def by_groups(name: str, sizes: tuple[int, int, int, int], **settings: Setting) -> OneKernel:
    usual: dict[str, Setting] = {**USUAL, **settings}
    return in_registers(name, sizes, "bf16", **usual)


def check_all(numbers: list[int]) -> None:
    cases = [drawn_groups(seed) for seed in numbers]
    library = library_of([case.one for case in cases])
    for case in cases:
        error, conflicts = error_of(library, case.one)
        assert error < case.tolerance and conflicts == 0, case.name


def test_drawn_rows_by_warpgroups_are_right() -> None:
    check_all(list(seeds(8)))


@pytest.mark.slow
def test_many_drawn_rows_by_warpgroups_are_right() -> None:
    check_all(list(seeds(100)))


FULL, EMPTY = (
    "af_await(af_full + af_slot, af_phase);",
    "af_await(af_empty + af_slot, af_phase ^ 1u);",
)
MEETING = "af_show_stores();\n        __syncthreads();"
ARRIVE = "if (threadIdx.x % 32 == 0) af_arrive(af_empty + af_slot);"
FAULTS = {
    "no_wait_for_a_panel": (FULL, ""),
    "wrong_phase_of_a_panel": (FULL, FULL.replace("phase", "phase ^ 1u")),
    "no_wait_for_a_place": (EMPTY, ""),
    "wrong_phase_of_a_place": (EMPTY, EMPTY.replace(" ^ 1u", "")),
    "no_place_given_back": (ARRIVE, ""),
    "no_wait_for_copies": ("af_await_copies(1);", ""),
    "waits_too_little": ("af_await_copies(1);", "af_await_copies(2);"),
    "no_groups_of_copies": ("af_end_copies();", ""),
    "stores_not_shown": ("af_show_stores();", ""),
    "no_meeting_before_rows_are_read": (MEETING, "af_show_stores();"),
    "no_fence_before_products": ("af_group_fence();", ""),
    "no_groups_of_products": ("af_group_commit();", ""),
    "no_wait_for_products": ("af_group_await(0);", ""),
    "exchanged_otherwise": ("% 8 ^ (line & 7)", "% 8 ^ (line & 3)"),
    "not_at_a_block": (" + af_to_block(stage0) / 2", ""),
    "another_line_of_a_long_run": ("s / 4 * 8192", "s / 4 * 4096"),
    "half_a_step": ("s % 4 * 32", "s % 4 * 16"),
    "terms_too_near": ("s * 2048", "s * 1024"),
    "not_turned": ("bf16, 96, 1, sums0", "bf16, 96, 0, sums0"),
    "words_exchanged": (
        "(k / 4 * 2 + k % 4 / 2) * 4 + k % 2 * 2", "(k / 4 * 2 + k % 2) * 4 + k % 4 / 2 * 2",
    ),
    "rows_of_another_group": ("/ 64 * 64", "* 0"),
    "sums_of_the_block_before": ("s > 0)", "1)"),
    "sums_begin_again": ("s > 0)", "s > 1)"),
    "one_block_less": ("q0 < 2;", "q0 < 1;"),
    "a_panel_less": ("q3 < 3;", "q3 < 2;"),
    "sums_not_rescaled": (" != 1.0f)", " > 2.0f)"),
    "no_total_of_pairs": ("__shfl_xor_sync(~0u, acc0, 2)", "acc0"),
    "rows_that_are_not_there": ("line < 72", "line <= 72"),
}  # fmt: skip


def test_planted_faults_are_seen() -> None:
    one = by_groups("attention", (72, 136, 72, 72))
    all_are_seen(one, FAULTS, lambda library, kernel: error_of(library, kernel)[0] < 2e-2)


def test_planted_faults_of_a_long_ring_are_seen() -> None:
    """Of which more panels are asked for before the first is waited for."""
    later, first = "af_await_copies(4);", "af_await_copies(1);"
    faults = {
        "no_wait_for_a_panel_of_many": (later, ""),
        "waits_too_little_for_many": (later, "af_await_copies(5);"),
        "no_wait_for_the_first": (first, ""),
        "waits_too_little_for_the_first": (first, "af_await_copies(2);"),
        "the_last_not_waited_for": ("af_await_copies(0);\n          while", "while"),
        "the_last_not_announced": ("while (asked > 0) send();", "if (asked > 0) send();"),
    }
    one = by_groups("attention", (72, 264, 72, 72), stages=6)
    all_are_seen(one, faults, lambda library, kernel: error_of(library, kernel)[0] < 2e-2)


TAKE, PASS = (
    "af_await(af_turn + threadIdx.x / 128, af_mine), af_mine ^= 1u;",
    "if (threadIdx.x % 32 == 0) af_arrive(af_turn + (threadIdx.x / 128 ^ 1));",
)


def test_planted_faults_of_groups_that_take_turns_are_seen() -> None:
    """An order that nobody keeps is slow, not wrong: what is lost are places, sums and turns."""
    late = "if (af_late && threadIdx.x % 32 == 0) af_arrive(af_empty + af_late - 1);"
    faults = {
        "nobody_begins": ("af_mine = threadIdx.x < 128;", "af_mine = 0;"),
        "no_turn_passed_on": (PASS, ""),
        "a_turn_taken_twice": ("if (!af_late) af_await", "af_await"),
        "no_place_given_back_later": (late, ""),
        "the_place_of_another": ("af_empty + af_late - 1", "af_empty + af_slot"),
        "nothing_is_late": ("af_late = af_slot + 1;", ""),
        "no_fence": ("af_group_fence();", ""),
        "the_last_product_not_waited_for": (
            f"{PASS}\n          af_group_await(0);\n          af_keep_sums(sums0);",
            f"{PASS}\n          af_keep_sums(sums0);",
        ),
    }
    one = by_groups("attention", (72, 136, 72, 72), pingpong=True)
    assert (
        one.unit.source.text.count(TAKE) == 4
    )  # of blocks whose columns are all there, and of others
    all_are_seen(one, faults, lambda library, kernel: error_of(library, kernel)[0] < 2e-2)


def test_who_takes_turns_is_right() -> None:
    cases = [
        by_groups("attention", (300, 200, 128, 128), pingpong=True, column_block=128, stages=2),
        by_groups("causal", (200, 300, 64, 64), pingpong=True, stages=4, grid="stride"),
        by_groups("window", (130, 200, 64, 96), pingpong=True),
    ]
    library = library_of(cases)
    for one in cases:
        assert error_of(library, one)[0] < 2e-2


def test_turns_are_offered_to_two_groups_with_one_product_before_the_other() -> None:
    space = CudaLaunchSpace(TARGETS["H100"])
    for name, offered in (("attention", True), ("causal", True), ("sums of a row", False)):
        graph = rows_program(name, (16384, 4096, 128, 128))
        asked = dict[str, tuple[Setting, ...]]()

        def first(
            name: str, options: tuple[Setting, ...], asked: dict[str, Any] = asked
        ) -> Setting:
            asked[parameter_of(name)] = options
            return GROUP_MMA if GROUP_MMA in options else options[0]

        space.choose(graph, whole(graph), first, "k")
        assert (PINGPONG.name in asked) == offered, name
    with pytest.raises(LoweringError, match="take turns"):
        by_groups("two sources", (72, 64, 64, 64), pingpong=True, stages=2)


def test_pieces_of_long_runs_have_places_of_their_own() -> None:
    o = GroupFactor(Panel("x", ix.lit(0), 1), 1000, 1, 64, 64, 192, 2)
    places = {
        eval(o.place(str(line), str(piece)).replace("/", "//"))
        for line in range(o.lines)
        for piece in range(o.pieces)
    }
    assert places == set(range(0, o.size, o.lanes))


def test_what_groups_cannot_share_is_refused() -> None:
    for settings in ({"row_block": 64}, {"threads": 128}, {"column_block": 96}):
        with pytest.raises(LoweringError, match="share no"):
            by_groups("attention", (200, 200, 64, 64), **settings)
    with pytest.raises(LoweringError, match="more than warpgroups"):
        by_groups("attention", (200, 200, 64, 264))


# --- what is offered ------------------------------------------------------------------------------


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", ["attention", "causal", "log-sum-exp", "grouped"])
@pytest.mark.parametrize("depth", [64, 128])
@pytest.mark.parametrize("turns", [False, True])
def test_the_default_on_hopper_spills_nothing_and_no_product_waits_for_another(
    name: str, depth: int, turns: bool
) -> None:
    graph, target = rows_program(name, (16384, 4096, depth, depth)), TARGETS["H100"]
    default = CudaLaunchSpace(target).default(graph, whole(graph))
    chosen = dict(default.settings)
    assert chosen[MMA.name] == GROUP_MMA and chosen[FRAGMENTS.name]
    launch = LaunchConfig.of(**{**chosen, PINGPONG.name: turns})
    source = one_kernel(graph, launch).unit.source
    log = compile_cubin(source.text, target.code_for, build_flags(source))[1]
    facts = parse_log(log)[source.name]
    assert facts.spilled == 0 and facts.registers == registers(384, 1, GATHERING).first
    # The compiler says where it orders products one after another (C7510 and its like).
    assert "Potential Performance Loss" not in log


def test_few_rows_and_other_devices_are_not_for_warpgroups() -> None:
    few = rows_program("one row", (1, 4096, 128, 128))
    many = rows_program("attention", (16384, 4096, 128, 128))
    for device, graph in (("H100", few), ("A100", many), ("B200", many)):
        default = CudaLaunchSpace(TARGETS[device]).default(graph, whole(graph))
        assert dict(default.settings)[MMA.name] == HALF_MMA
