"""Rows that are copied to shared memory ahead: right on the emulator, whose copies arrive as late
as they can, and compiled for each architecture."""

from __future__ import annotations

import pytest

from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import Emulated, EmulatorError
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.kernel.ir.types import Kernel, Store
from autofuse.kernel.passes import fetch_rows
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr, Sym
from autofuse.plan.types import LaunchConfig, Setting
from benchmarks.sass import LOAD, decoded, kernel_code
from tests.support.cuda_settings_cases import ROW
from tests.support.kernel_texts import text as plain
from tests.support.loop_kernels import ZERO, at, body_of, kernel, loop, r, s, summed, var
from tests.support.one_kernel import OneKernel, launched, one_kernel

BULK, PIECES = "", "#define AF_BULK 0\n"
# What the assembler makes of cp.async.bulk, and of a 16-byte cp.async.
COPY, PIECE = 0x3BA, 0xFAE


def fetching(keep: str = "registers", reduce: str = "block", **more: Setting) -> OneKernel:
    launch = LaunchConfig.of(threads=64, vector=4, keep=keep, reduce=reduce, stages=2, **more)
    return one_kernel(canonical(ROW["standard"]), "k", launch)


def run(made: OneKernel, text: str) -> None:
    """Seven rows by two blocks; raises EmulatorError, or AssertionError for wrong results."""
    inputs = random_inputs(made.graph, 3)
    found = launched(Emulated(text), made, inputs, few=2)
    result = check(tuple(found), reference_of(made.graph, inputs))
    assert result.ok, result.message


@pytest.mark.parametrize("kind", [BULK, PIECES])
@pytest.mark.parametrize("reduce", ["block", "warp"])
def test_rows_arrive_however_they_are_copied(kind: str, reduce: str) -> None:
    made = fetching(reduce=reduce)
    assert made.text.count("af_fetch(fetched") == 2
    run(made, kind + made.text)


# What is wrong -> where rows are kept, the text, what stands for it, and what the emulator says.
LEFT = "the block ends while copies to its shared memory are under way"
FAULTS = {
    "nobody waits": ("registers", "af_await(ready + stage, phase);", "", LEFT),
    "the wrong phase": ("registers", "stage, phase);", "stage, phase ^ 1);", LEFT),
    "one phase": ("registers", "phase ^= 1;", "phase ^= 0;", LEFT),
    "too few arrivals": ("registers", "x, 2, 64)", "x, 3, 64)", "nobody is going to write"),
    "too many": ("registers", "x, 2, 64)", "x, 1, 64)", LEFT),
    "no mbarrier": ("registers", "if (threadIdx.x < 2)", "if (false)", "before it is initialised"),
    "its own place": ("registers", "stage ? stage - 1 : 1", "stage", "nobody is going to write"),
    "no such row": ("registers", "if (r0 >= 7) return;", "", "out of bounds"),
    "off a boundary": ("registers", "in0 + r0 * 192", "in0 + r0 * 192 + 1", "misaligned"),
    "one iteration": ("registers", "g += gridDim.x", "g += 100", LEFT),
}


@pytest.mark.wide(8)
@pytest.mark.parametrize("kind", [BULK, PIECES])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault: str, kind: str) -> None:
    keep, right, wrong, message = FAULTS[fault]
    made = fetching(keep)
    assert made.text.count(right) == 1
    with pytest.raises(EmulatorError, match=message):
        run(made, kind + made.text.replace(right, wrong))


def test_a_row_is_not_copied_where_one_is_still_read() -> None:
    """Rows that are read again after the last fold need a barrier of their own; with kept rows
    the folds are enough."""
    made, end = fetching("reread"), "      __syncthreads();\n      if (++stage"
    run(made, made.text)
    assert made.text.count(end) == 1 and end not in fetching("registers").text
    with pytest.raises(EmulatorError, match="depends on the order of threads"):
        run(made, made.text.replace(end, "      if (++stage"))


def test_who_does_not_wait_computes_with_poison() -> None:
    """One thread waits for all: what the others read depends on when they come."""
    made, wait = fetching(), "af_await(ready + stage, phase);"
    with pytest.raises(EmulatorError, match="depends on the order of threads"):
        run(made, made.text.replace(wait, f"if (threadIdx.x == 40) {wait}"))


def sums(row: Sym, lane: Sym, place: Expr, **facts: Setting) -> Kernel:
    """One sum of x[place] for each row."""
    return kernel(loop("grid", row, ZERO, summed(lane, place), Store("out", row, s)), **facts)


def test_the_pass_takes_whole_rows_in_their_places() -> None:
    lane, many, long = var("l", 64), var("r", 10**6), var("l", 1 << 15)
    rows = at(r, 64, lane)
    assert body_of(fetch_rows(sums(r, lane, rows, stages=3, threads=64))) == plain("""
        grid r < 10:i64
          local fetched0: f32[64] = x[mul(r, 64:i64) ..] in 3 stages
          var s: f32 = 0.0:f32
          lane l < 64:i64 add->s
            s = add(s, fetched0[l])
          out[r] = s
    """)
    left = {
        "nothing asked for": sums(r, lane, rows),
        "no next row": sums(r, lane, rows, stages=2, grid="one"),
        "several blocks": sums(r, lane, rows, stages=2, reduce="split"),
        "several rows": sums(r, lane, rows, stages=2, reduce="warp", rows=3),
        "one row for all": sums(r, lane, lane, stages=2),
        "off a boundary": sums(r, lane, at(r, 63, lane), stages=2),
        "beyond the end": sums(many, lane, at(many, 64, lane), stages=2),
        "every other element": sums(r, lane, at(r, 128, ix.imul(lane, 2)), stages=2),
        "no room": sums(r, long, at(r, 1 << 15, long), stages=2),
    }
    for name, each in left.items():
        assert fetch_rows(each) == each, name


@pytest.mark.parametrize(
    ("arch", "operation"), [("sm_80", PIECE), ("sm_90", COPY), ("sm_100", COPY)]
)
def test_machine_code_copies_ahead(arch: str, operation: int) -> None:
    """No load from memory is left; the copies are what the architecture has for them."""
    for reduce in ("block", "warp"):
        for keep in ("registers", "shared", "reread"):
            cubin, log = compile_cubin(fetching(keep, reduce).text, arch)
            assert log == ""
            found = [i.operation for i in decoded(kernel_code(cubin, "k"))]
            assert operation in found and LOAD not in found
