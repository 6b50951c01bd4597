"""Attention whose scores stay in registers: right on the emulator, whose faults are seen, and
compiled by NVRTC."""

from __future__ import annotations

import re

import pytest

from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS, blocks_resident
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.kernel.cuda import fragments
from autofuse.kernel.cuda import shape as cuda_shape
from autofuse.kernel.cuda.fragments import Lane
from autofuse.kernel.ir.emit import LoweringError
from autofuse.ops import index as ix
from autofuse.ops.scalar import Lit
from autofuse.plan.parameters import FRAGMENTS, HALF_MMA, STRICT_MMA
from search_spaces import CudaLaunchSpace
from tests.support.emulation import library_of, one_kernel
from tests.support.fragment_cases import FragmentCase, drawn_fragments, in_registers, rows_program
from tests.support.fragment_errors import error_of
from tests.support.planted import all_are_seen, body, changed
from tests.support.seeds import seeds
from tests.support.tile_programs import whole


def check_all(cases: list[FragmentCase]) -> None:
    library = library_of([case.one for case in cases])
    for case in cases:
        assert "af_multiply" in body(case.one), case.name
        assert error_of(library, case.one)[0] < case.tolerance, case.name


def test_drawn_rows_in_registers_are_right() -> None:
    check_all([drawn_fragments(seed) for seed in seeds(8)])


@pytest.mark.slow
def test_many_drawn_rows_in_registers_are_right() -> None:
    check_all([drawn_fragments(seed) for seed in seeds(200)])


def test_terms_are_rounded_as_they_are_packed_and_factors_of_sums_never() -> None:
    text = body(in_registers("converted", (40, 72, 32, 32)))
    assert "af_pair_bf16(" in text and text.count("af_exp2_f32(v") == 5, (
        "a term, a factor, rows of -inf"
    )
    assert "af_load_bf16(af_store_bf16(" not in text


def test_no_two_pieces_that_are_loaded_at_once_are_in_the_same_banks() -> None:
    names = ("attention", "keys turned", "values turned", "heads inside")
    kernels = [in_registers(name, (40, 72, d, d)) for name in names for d in (16, 32, 64)]
    kernels += [in_registers("attention", (40, 72, d, d), "f32", mma=STRICT_MMA) for d in (16, 64)]
    library = library_of(kernels)
    for one in kernels:
        assert "af_copy_ahead" in body(one)
        error, conflicts = error_of(library, one)
        assert error < 2e-2 and conflicts == 0


WAIT = "af_await_copies(1);"
FAULTS = {
    "no_wait": (WAIT, ""),
    "waits_too_little": (WAIT, "af_await_copies(2);"),
    "no_groups": ("af_end_copies();", ""),
    "no_barrier_after_the_wait": (f"{WAIT}\n          __syncthreads();", WAIT),
    "one_block_less": ("q0 < 2;", "q0 < 1;"),
    "last_block_missing": ("q1 < 1;", "q1 < 0;"),
    "a_block_again": ("q1 + 2;", "q1 + 1;"),
    "another_base": ("* 0.43393561776738354f", "* 0.30078125f"),
    "another_base_for_the_row": ("* (-1.4426950408889634f)", "* (-1.0f)"),
    "one_column_less": ("< 72", "< 71"),
    "first_row_of_another_warp": ("top = w0;", "top = 0;"),
    "keys_exchanged_otherwise": (
        "own = line * 32 + (lane / 8 % 2 ^ (line / 2", "own = line * 32 + (lane / 8 % 2 ^ (line",
    ),
    "not_turned": ("af_matrices_turned(b", "af_matrices(b"),
    "words_exchanged": ("b[0][0][0], b[0][0][1]", "b[0][0][1], b[0][0][0]"),
    "halves_of_rows_exchanged": ("(i * 4 + s * 2 + 0) * 2 + 1", "(i * 4 + s * 2 + 0) * 2 + 0"),
    "columns_exchanged": (" * 2 + 1]);", " * 2]);"),
    "no_total_of_neighbours": (", 1);", ", 0);"),
    "no_total_of_pairs": ("__shfl_xor_sync(~0u, acc0, 2)", "acc0"),
    "sums_not_rescaled": (" != 1.0f)", " > 2.0f)"),
    "another_stage": ("(q0 * 2 + 2) % 3u", "(q0 * 2 + 1) % 3u"),
    "a_piece_of_another_line": ("put + p * 512", "put + p * 256"),
    "a_piece_from_another_line": ("get + (int32_t)p * 512", "get + (int32_t)p * 256"),
    "steps_at_one_place": ("own ^ (piece & 3)", "own ^ (piece & 1)"),
    "a_row_too_far": ("line < count", "line <= count"),
}  # fmt: skip


def test_planted_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_shape, "STATIC_SHARED", 0)  # where the emulator sees races
    one = in_registers("attention", (40, 72, 32, 32))
    all_are_seen(one, FAULTS, lambda library, kernel: error_of(library, kernel)[0] < 2e-2)


# --- layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (32, 48), (16, 128)])
def test_lanes_share_a_fragment_evenly(rows: int, columns: int) -> None:
    found = set()
    for number in range(32):
        lane = Lane(ix.lit(number), ix.lit(0))
        for part in range(rows // 16):
            for half in range(2):
                for across in range(columns // 8):
                    for which in range(2):
                        given = (ix.lit(part), ix.lit(half), ix.lit(across), ix.lit(which))
                        at = lane.row(*given[:2]), lane.column(*given[2:])
                        place = fragments.element(columns, *given)
                        assert isinstance(place, Lit) and place.value < rows * columns / 32
                        found.add((number, place.value, *at))
    assert (
        len(found) == len({f[:2] for f in found}) == len({f[2:] for f in found}) == rows * columns
    )


# --- what is offered and what is let pass ---------------------------------------------------------


def test_what_warps_cannot_share_is_refused() -> None:
    with pytest.raises(LoweringError, match="share no"):
        in_registers("attention", (40, 72, 32, 32), row_block=16)
    with pytest.raises(LoweringError, match="no such factors"):
        in_registers("attention", (40, 72, 32, 32), "f32")
    with pytest.raises(LoweringError, match="two by two"):
        in_registers("values turned", (40, 72, 32, 32), "f32", mma=STRICT_MMA)


def test_causal_blocks_are_skipped_and_the_longest_come_first() -> None:
    one = in_registers("causal", (160, 160, 16, 16))
    lines = [line for line in body(one).splitlines() if "for (int32_t q" in line]
    assert "q0 < f0;" in lines[0] and "q1 < e0 - f0;" in lines[1] and len(lines) == 2
    assert "- b0 * 512 + 2048" in body(one)


@pytest.mark.parametrize("name", ["causal", "causal, a large number"])
def test_a_mask_is_compared_in_the_last_blocks_alone(name: str) -> None:
    one = in_registers(name, (160, 160, 16, 16))
    inside, last = body(one).split("for (int32_t q1")
    assert " <= " not in inside.split("for (int32_t q0")[1] and " <= " in last
    (count,) = (line for line in inside.splitlines() if "int32_t f0 = " in line)
    faulty = changed(one, "a_block_too_many", count, count.replace(";", " + 1;"))
    library = library_of([one, faulty])
    assert error_of(library, one)[0] < 2e-2
    with pytest.raises(AssertionError):
        assert error_of(library, faulty)[0] < 2e-2


def test_masks_and_exponents_that_are_no_numbers_of_their_own_stay_what_they_are() -> None:
    """A mask of -3e38 times log2(e) is no number; exponentials that no extremum bounds, and those
    of f32 in two parts, are a library's."""
    masked = body(in_registers("causal, a large number", (40, 40, 16, 16)))
    assert re.search(r"const float v\d+ = v\d+ \* 1.4426950408889634f;", masked)
    for name, dtype, mma in (
        ("capped, with a bias", "f32", STRICT_MMA),
        ("no softmax", "bf16", HALF_MMA),
    ):
        assert "af_exp2_f32(v" not in body(in_registers(name, (40, 72, 32, 32), dtype, mma=mma))


@pytest.mark.wide(5)
@pytest.mark.parametrize(
    ("device", "arch"), [("A100", "sm_80"), ("H100", "sm_90a"), ("B200", "sm_100")]
)
@pytest.mark.parametrize("name", ["attention", "causal, a large number"])
@pytest.mark.parametrize("depth", [64, 128, 256])
def test_defaults_spill_nothing_and_leave_room_for_two_blocks(
    device: str, arch: str, name: str, depth: int
) -> None:
    """Those of warps, also where warpgroups come first (`test_fragment_groups.py`)."""
    graph, target = rows_program(name, (4096, 4096, depth, depth)), TARGETS[device]
    default = CudaLaunchSpace(TARGETS["A100"]).default(graph, whole(graph))
    one = one_kernel(graph, default)
    source, shape = one.unit.source, one.unit.geometry
    facts = parse_log(compile_cubin(source.text, arch, build_flags(source))[1])[source.name]
    assert dict(default.settings)[FRAGMENTS.name] and facts.spilled == 0
    shared = shape.shared + facts.shared
    assert blocks_resident(target, shape.block, facts.registers, shared) >= 2


@pytest.mark.parametrize(
    ("name", "columns", "device", "wanted"),
    [
        ("attention", 4096, "A100", (64, 3)),
        ("attention", 4096, "B200", (64, 4)),
        ("attention", 4096, "RTX4090", (32, 2)),  # two blocks share 100 KiB
        ("attention", 4090, "A100", (32, 4)),  # the last columns are asked for one by one
        ("two sources", 4096, "A100", (32, 2)),  # both have sums, and left operands
    ],
)
def test_tiles_have_as_many_columns_and_stages_as_two_blocks_have_room_for(
    name: str, columns: int, device: str, wanted: tuple[int, int]
) -> None:
    graph = rows_program(name, (32768, columns, 128, 128))
    found = dict(CudaLaunchSpace(TARGETS[device]).default(graph, whole(graph)).settings)
    assert (found["column_block"], found["stages"]) == wanted
