"""Products on tensor cores: right on the emulator, whose faults are seen, and compiled by NVRTC."""

from __future__ import annotations

import pytest

from autofuse.backends.cuda.build import build_flags
from autofuse.backends.cuda.devices import TARGETS, blocks_resident
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.graph.reference import random_inputs
from autofuse.kernel.cuda import shape as cuda_shape
from autofuse.kernel.cuda.mma import PIECE, Factor, warp_grid
from autofuse.kernel.ir.types import Panel
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops import index as ix
from autofuse.plan.parameters import GROUP_MMA, HALF_MMA, MMA, NO_MMA, STRICT_MMA, TF32_MMA, Setting
from benchmarks.sass import BARRIER
from benchmarks.sass_tensor import AHEAD, MATRICES, MULTIPLY, warp_facts
from benchmarks.tensor_model import Blocks, RunFacts, tensor_share
from search_spaces import CudaLaunchSpace
from tests.support.emulation import counted, library_of, one_kernel
from tests.support.mma_cases import Case, drawn, program
from tests.support.mma_runs import LAYOUTS, difference, made
from tests.support.planted import all_are_seen, body, changed
from tests.support.seeds import seeds
from tests.support.tile_programs import whole


def right(cases: list[Case]) -> int:
    """Raises AssertionError for a case that is wrong; how many are on tensor cores."""
    library = library_of([case.one for case in cases])
    for case in cases:
        assert difference(library, case.one)[0] < case.tolerance, case.name
    return sum("af_multiply" in body(case.one) for case in cases)


def test_drawn_products_are_right() -> None:
    assert right([drawn(seed) for seed in seeds(8)]) > 5


@pytest.mark.slow
def test_many_drawn_products_are_right() -> None:
    assert right([drawn(seed) for seed in seeds(400)]) > 300


def test_no_two_rows_that_are_loaded_at_once_are_in_the_same_banks() -> None:
    kernels = [made(name) for name in LAYOUTS]
    kernels += [made(name, "f32", mma=STRICT_MMA) for name in LAYOUTS[::2]]
    library = library_of(kernels)
    for one in kernels:
        assert "af_copy_ahead" in body(one)
        error, conflicts = difference(library, one)
        assert error < 2e-2 and conflicts == 0
    plain = changed(made("product"), "plain", " ^ (line / 2 & 3)", "")
    assert difference(library_of([plain]), plain)[1] > 0


WAIT, SYNC, END = "af_await_copies(1);", "__syncthreads();", "            }\n"
LOOP, MEETING = "for (int32_t r = 0; r < runs; r++) {", f"{END}            {SYNC}\n"
FAULTS = {
    "no_wait": (WAIT, ""),
    "waits_too_little": (WAIT, WAIT.replace("1", "2")),
    "no_groups": ("af_end_copies();", ""),
    "no_barrier_after_the_wait": (f"{WAIT}\n              {SYNC}", WAIT),
    "no_barrier_before_sums": (f"{MEETING}            if (warp", f"{END}            if (warp"),
    "no_barrier_after_sums": (f"{MEETING}          }}", f"{END}          }}"),
    "left_exchanged_otherwise": ("(lane / 16 ^ (line / 2 & 3))", "(lane / 16 ^ (line & 3))"),
    "right_exchanged_otherwise": ("(piece / 8 ^ (line & 7))", "(piece / 8 ^ (line & 3))"),
    "one_term_less": ("terms = 104;", "terms = 103;"),
    "one_run_less": (LOOP, LOOP.replace("runs", "runs - 1")),
    "another_stage": ("r % 3 * ", "(r + 1) % 3 * "),
    "not_turned": ("af_matrices_turned(b", "af_matrices(b"),
    "words_exchanged": ("[j % 2 * 2], b", "[j % 2 * 2 + 1], b"),
    "not_aligned": ("get = ta + (", "get = ta + 1 + ("),
    "a_row_too_far": ("line < high", "line <= high"),
}  # fmt: skip


def test_planted_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_shape, "STATIC_SHARED", 0)  # where the emulator sees races
    one = made("product")
    all_are_seen(one, FAULTS, lambda library, kernel: difference(library, kernel)[0] < 2e-2)


# --- layouts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (1, 256), (37, 90), (16, 16), (256, 64)])
def test_warps_cover_a_tile(rows: int, columns: int) -> None:
    for warps in (1, 2, 4, 8):
        grid = warp_grid(rows, columns, warps)
        assert grid.down * grid.across <= warps
        assert grid.down * grid.rows >= rows and grid.across * grid.columns >= columns


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("strides", [(1000, 1), (1, 1000)])
def test_pieces_of_a_line_have_places_of_their_own(itemsize: int, strides: tuple[int, int]) -> None:
    for padded in (16, 32, 48, 64, 96, 128):
        o = Factor(Panel("x", ix.lit(0), 1), *strides, padded, padded, 64 // itemsize, itemsize)
        for line in range(o.lines):
            exchange = eval_swizzle(o.swizzle("line"), line)
            places = {piece ^ exchange for piece in range(o.pieces)}
            assert len(places) == o.pieces
            assert max(places) * PIECE < o.pitch * itemsize


def eval_swizzle(text: str, line: int) -> int:
    """(line / N * 2 & M), of which the division and the factor may be missing."""
    value, most = text.strip("()").split(" & ")
    parts = value.split(" ")
    number = line // int(parts[parts.index("/") + 1]) if "/" in parts else line
    return number * (2 if value.endswith("* 2") else 1) & int(most)


# --- what is offered and what is let pass ---------------------------------------------------------


def options_of(name: str, dtype: str, device: str = "H100") -> tuple[Setting, ...]:
    """The instruction classes that are offered."""
    graph = program(name, (512, 512, 64), dtype)
    seen: dict[str, tuple[Setting, ...]] = {}

    def choose(key: str, options: tuple[Setting, ...]) -> Setting:
        seen[key.split(".")[2]] = options
        return next(o for o in options if o != "blas")

    CudaLaunchSpace(TARGETS[device]).choose(graph, whole(graph), choose, "p")
    return seen.get(MMA.name, ())


def test_instructions_are_offered_to_factors_that_they_multiply() -> None:
    assert options_of("epilogue", "bf16") == (GROUP_MMA, HALF_MMA, NO_MMA)
    assert options_of("epilogue", "bf16", "A100") == (HALF_MMA, NO_MMA)
    assert options_of("product", "f32") == (NO_MMA, STRICT_MMA)
    assert options_of("product", "f64") == ()
    assert options_of("attention", "bf16") == (HALF_MMA, GROUP_MMA, NO_MMA)


def test_the_check_refuses_rounded_factors_only() -> None:
    kernels = [made("product", "f32", mma=kind) for kind in (STRICT_MMA, TF32_MMA)]
    library = library_of(kernels)
    for one, fine in zip(kernels, (True, False), strict=True):
        inputs = random_inputs(one.graph, 1)
        found, _ = counted(library, one, inputs)
        assert check(found, reference_of(one.graph, inputs)).ok is fine


@pytest.mark.parametrize("device", ["A100", "B200"])
def test_defaults_spill_nothing_and_leave_room_for_two_blocks(device: str) -> None:
    graph, target = program("epilogue", (4096, 4096, 4096), "bf16"), TARGETS[device]
    default = CudaLaunchSpace(target).default(graph, whole(graph))
    one = one_kernel(graph, default)
    source, shape = one.unit.source, one.unit.geometry
    facts = parse_log(compile_cubin(source.text, target.arch, build_flags(source))[1])[source.name]
    assert dict(default.settings)["mma"] == HALF_MMA and facts.spilled == 0
    shared = shape.shared + facts.shared
    assert blocks_resident(target, shape.block, facts.registers, shared) >= 2


def test_the_share_of_the_peak_follows_from_what_takes_longest() -> None:
    """Of 4 warps with 64x64 each, 2 blocks at once, 2 for each multiprocessor; H100s multiply twice
    as fast. The first run of one of them comes while nothing is multiplied."""
    operations = [BARRIER, *[MATRICES] * 16, *[AHEAD] * 8, *[0] * 112, *[MULTIPLY] * 64]
    run = warp_facts(operations, 4)
    a100, h100 = (
        tensor_share(t, run, Blocks(2, 2 * t.sms, 125)) for t in (TARGETS["A100"], TARGETS["H100"])
    )
    assert a100 == pytest.approx(250 / 251)
    assert h100 == pytest.approx(512 / (512 + 256) * 250 / 251)


def test_a_last_turn_in_parts_is_a_part_of_the_time_and_meeting() -> None:
    """Of 1 1/2 tiles for each multiprocessor, one run of 512 clocks each, one block at once."""
    target, run = TARGETS["A100"], RunFacts(0, 0, 512 * 1024, 0, 0, 0)
    tiles = target.sms * 3 // 2

    def clocks(blocks: Blocks) -> float:
        return 1.5 * blocks.runs * 512 / tensor_share(target, run, blocks)

    assert clocks(Blocks(1, tiles, 10)) == pytest.approx(2 * 11 * 512)
    assert clocks(Blocks(1, tiles, 10, after=100)) == pytest.approx(2 * 11 * 512 + 200)
    assert clocks(Blocks(1, tiles, 10, 2, meeting=70)) == pytest.approx(17 * 512 + 3 * 70)
    assert clocks(Blocks(2, tiles, 10, 2)) == pytest.approx(16 * 512)


def test_the_last_rows_share_the_text_of_the_others() -> None:
    """Blocks of one tile and of two, of which some rows are not there, also where a left operand is
    computed, and where terms come in blocks."""
    high: dict[str, Setting] = {"micro": "32x64", "column_block": 64}
    kernels = [
        made(name, sizes=(72, 64, 104), row_block=rows, **high, **more)
        for name in ("epilogue", "left turned", "prologues")
        for rows in (32, 64)
        for more in ({}, {"term_block": 64})
    ]
    library = library_of(kernels)
    for one in kernels:
        assert body(one).count("af_multiply_bf16(") == 1 and "high = " in body(one)
        assert difference(library, one)[0] < 2e-2
