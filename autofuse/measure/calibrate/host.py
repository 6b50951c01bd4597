"""Measure what a device can do at best: the constants behind every lower bound.

Everything is the best of several runs of small C programs, because a bound must not be too high.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from autofuse.backends.base import Program, Source
from autofuse.backends.ccompiler import THREADED, compile_program
from autofuse.backends.cpu.backend import FLAGS, MATH_FLAGS
from autofuse.backends.cpu.blas import blas_pointers
from autofuse.backends.machine import last_level_cache_bytes, vector_bits
from autofuse.backends.sealed import load_checked
from autofuse.cost.bounds import Calibration
from autofuse.kernel.text.dialects import C
from autofuse.limits import usable_cores
from autofuse.measure.calibrate.scalar import calibrate_scalar, scalar_programs
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

# Working sets of the cache tiers, in bytes; the last lies far out of any cache.
TIERS = (1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 24)
BEYOND = 4
MOST_BYTES = 1 << 28
GEMM = 384
_LINE = 64
# On a machine busy with other work waking a thread takes milliseconds: no bound may rest on that.
LAUNCH_MOST_US = 2.0
_SECONDS_EACH = 0.02
_ENTRY = "af_calibrate"

# What counts as special, as C and with the operations the op table gives it.
_SPECIALS = (
    ("af_exp_f32(x)", 15.0),
    ("logf(x)", 15.0),
    ("sinf(x)", 15.0),
    ("1.0f / (1.0f + af_exp_f32(-x))", 20.0),
    ("af_tanh_f32(x)", 20.0),
    ("af_erf_f32(x)", 20.0),
)
_COPY, _SUM, _CHEAP, _EMPTY, _WIDE, _NARROW, _TRIAD, _SPECIAL = range(8)
# Chains of multiply-adds that hide each other's latency; on 512 bits pairs of 16-bit factors count.
CHAINS = 12
_NARROW_OPS = 2 * CHAINS * 32
# A processor that multiplies tiles does so many times the multiply-adds of its vectors (Intel's
# TDPBF16PS: 16 x 16 x 32 in 16 cycles, against twice 32 a cycle); generated code may get there.
_TILES_FACTOR = 8.0

# Threads work on parts of their own for all repetitions: waiting for each other is not counted.
_TEXT = """
#define MEMORY __asm__ volatile("" ::: "memory")
static void copy(const float *restrict a, float *restrict b, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n; i++) b[i] = a[i] + 1.0f;
}
/* A core loads more than it stores. */
static void triad(const float *restrict a, float *restrict b, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n / 2; i++) b[i] = a[i] + a[n / 2 + i];
}
/* One register each, of vectors of this machine: with more of them chains would be spilled. */
typedef float lanes __attribute__((vector_size(@BYTES@)));
static float sum(const float *restrict a, int64_t n) {
  lanes s[8] = {0}, all = {0};
  for (int64_t i = 0; i < n; i += 8 * (int64_t)(sizeof(lanes) / 4)) {
    const lanes *at = (const lanes *)(a + i);
    #pragma GCC unroll 8
    for (int j = 0; j < 8; j++) s[j] += at[j];
  }
  for (int j = 0; j < 8; j++) all += s[j];
  return all[0] + all[1];
}
enum { LANES = sizeof(lanes) / 4, WIDE_LANES = sizeof(lanes) / 8 };
static void cheap(float *restrict b, int64_t n) {
  lanes x[12];
  for (int j = 0; j < 12; j++) for (int l = 0; l < LANES; l++) x[j][l] = b[l] + j;
  for (int64_t i = 0; i < n; i++) {
    #pragma GCC unroll 12
    for (int j = 0; j < 12; j++) x[j] = x[j] * 0.999f + 0.001f;
  }
  for (int j = 0; j < 12; j++) for (int l = 0; l < LANES; l++) b[l] += x[j][l];
}
typedef double wide_lanes __attribute__((vector_size(@BYTES@)));
static void wide(float *restrict b, int64_t n) {
  wide_lanes x[12];
  for (int j = 0; j < 12; j++) for (int l = 0; l < WIDE_LANES; l++) x[j][l] = b[l] + j;
  for (int64_t i = 0; i < n; i++) {
    #pragma GCC unroll 12
    for (int j = 0; j < 12; j++) x[j] = x[j] * 0.999 + 0.001;
  }
  for (int j = 0; j < 12; j++) for (int l = 0; l < WIDE_LANES; l++) b[l] += (float)x[j][l];
}
/* Pairs of 16-bit factors, where there is an instruction for them; else nothing is done. */
static int narrow(float *restrict b, int64_t n) {
#ifdef __AVX512BF16__
  __m512 x[12];
  for (int j = 0; j < 12; j++) x[j] = _mm512_set1_ps(b[0] + j);
  const __m512bh f = (__m512bh)_mm512_set1_epi16(0x3c00);
  for (int64_t i = 0; i < n; i++) {
    #pragma GCC unroll 12
    for (int j = 0; j < 12; j++) x[j] = _mm512_dpbf16_ps(x[j], f, f);
  }
  for (int j = 0; j < 12; j++) b[j] += _mm512_reduce_add_ps(x[j]);
  return 1;
#else
  (void)b; (void)n;
  return 0;
#endif
}
static int has_tiles(void) {
#ifdef __AMX_BF16__
  return 1;
#else
  return 0;
#endif
}
@SPECIALS@
static void work(const int64_t *q, const float *a, float *b, int64_t n) {
  for (int64_t r = 0; r < q[2]; r++) {
    switch (q[0]) {
      case 0: copy(a, b, n); break;
      case 1: b[0] += sum(a, n); break;
      case 2: cheap(b, n); break;
      case 4: wide(b, n); break;
      case 5: (void)narrow(b, n); break;
      case 6: triad(a, b, n); break;
      @CASES@
    }
    MEMORY;
  }
}
int32_t af_calibrate(void **buffers, void *workspace, void **blas) {
  const int64_t *q = (const int64_t *)buffers[0];
  float *a = (float *)buffers[1], *b = (float *)buffers[2];
  const int t = (int)q[3];
  const int64_t n = q[1] / t / 128 * 128;
  (void)workspace; (void)blas;
  if (q[0] < 0) return narrow(b, 0) + 2 * has_tiles();
  if (q[0] == 3) {
    for (int64_t r = 0; r < q[2]; r++) {
      if (t > 1) {
        #pragma omp parallel num_threads(t)
        { MEMORY; }
      }
      MEMORY;
    }
  } else if (t > 1) {
    #pragma omp parallel for num_threads(t) schedule(static)
    for (int i = 0; i < t; i++) work(q, a + i * n, b + i * n, n);
  } else {
    work(q, a, b, n);
  }
  return 0;
}
"""


def _text() -> str:
    """The program: the printer's own prelude, so that math is the math of generated kernels."""
    bodies = [
        f"static void special{k}(const float *restrict a, float *restrict b, int64_t n) {{\n"
        "  #pragma omp simd\n"
        f"  for (int64_t i = 0; i < n; i++) {{ const float x = a[i]; b[i] = {body}; }}\n}}"
        for k, (body, _) in enumerate(_SPECIALS)
    ]
    cases = [f"case {_SPECIAL + k}: special{k}(a, b, n); break;" for k in range(len(_SPECIALS))]
    text = _TEXT.replace("@SPECIALS@", "\n".join(bodies))
    text = text.replace("@BYTES@", str(vector_bits() // 8))
    intrinsics = "#ifdef __AVX512BF16__\n#include <immintrin.h>\n#endif\n"
    return intrinsics + C.prelude + text.replace("@CASES@", "\n      ".join(cases))


def _program() -> Program:
    flags = (*FLAGS, *MATH_FLAGS["relaxed"], "-mprefer-vector-width=512", THREADED)
    source = Source("calibrate", _text(), flags)
    none = TensorType((), DType.F32)
    return Program((source,), _ENTRY, (none,), (none,))


def _compile_all() -> None:
    """Everything at once, before anything is timed: it takes most of the seconds, and would be in
    the way of a clock. Who needs a program finds it built."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(compile_program, (*scalar_programs(), _program())))


def _aligned(count: int) -> np.ndarray:
    """Ones, f32[count], from the start of a line of the cache, as arrays of plans lie."""
    whole = np.ones(count + _LINE // 4, np.float32)
    return whole[-(whole.ctypes.data // 4) % (_LINE // 4) :][:count]


class _Device:
    """The calibration program, loaded, with buffers for its largest run."""

    def __init__(self, largest: int) -> None:
        built = compile_program(_program())
        self._library = load_checked(built.artifact.path, built.artifact.digest)
        self._entry = self._library[_ENTRY]
        self._entry.restype = ctypes.c_int32
        self._entry.argtypes = [ctypes.c_void_p] * 3
        self._memory = [_aligned(largest // 8 + 4096) for _ in range(2)]

    def narrow_units(self) -> tuple[bool, bool]:
        """Whether there are vector instructions and tiles for products of 16-bit floats."""
        query = np.array([-1, 0, 1, 1], np.int64)
        found = self._entry((ctypes.c_void_p * 3)(*self._addresses(query)), None, None)
        return bool(found & 1), bool(found & 2)

    def _addresses(self, query: np.ndarray) -> list[int]:
        return [query.ctypes.data, *(m.ctypes.data for m in self._memory)]

    def best_s(self, what: int, n: int, threads: int, guess_s: float) -> float:
        """Seconds of one run at best, repeated so often that the clock does not matter."""
        repeat = max(1, int(2e-4 / max(guess_s, 1e-9)))
        query = np.array([what, n, repeat, threads], np.int64)
        table = (ctypes.c_void_p * 3)(*self._addresses(query))
        return best_of(lambda: self._entry(table, None, None)) / repeat


def best_of(run: Callable[[], object], seconds: float = _SECONDS_EACH) -> float:
    """The shortest of as many runs as fit `seconds` of this thread's processor time, so that other
    work on the machine leaves as many (at least three), in seconds."""
    best = float("inf")
    end = time.thread_time() + seconds
    runs = 0
    while runs < 3 or time.thread_time() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def calibrate_cpu(threads: int | None = None) -> Calibration:
    """The CPU's peaks with `threads` OpenMP threads (default: every usable core), and alone.

    Takes some 5 s. Raises CompileError, CompilerMissing or LaunchError."""
    count = threads or usable_cores()
    cache = last_level_cache_bytes()
    far = min(MOST_BYTES, max(1 << 26, BEYOND * cache))
    _compile_all()
    device = _Device(far)
    alone = replace(_measured(device, 1, far, cache), scalar=calibrate_scalar())
    if count == 1:
        return alone
    together = _measured(device, count, far, cache)
    return replace(_at_least(together, alone, count), alone=alone)


def _measured(device: _Device, threads: int, far: int, cache: int) -> Calibration:
    rates = [_bandwidth(device, size, threads) for size in TIERS]
    beyond = _bandwidth(device, far, threads)
    for k in range(len(rates) - 2, -1, -1):  # a smaller working set is never slower
        rates[k] = max(rates[k], rates[k + 1], beyond)
    rates[-1] = max(rates[-1], beyond)
    n = 4096 * threads
    lanes = vector_bits() // 32
    cheap, wide, narrow = (
        operations * n / device.best_s(what, n, threads, 1e-5) / 1e9
        for what, operations in (
            (_CHEAP, 2 * CHAINS * lanes), (_WIDE, CHAINS * lanes), (_NARROW, _NARROW_OPS),
        )
    )  # fmt: skip
    has_vectors, has_tiles = device.narrow_units()
    special = max(
        flops * n / device.best_s(_SPECIAL + k, n, threads, 1e-6) / 1e9
        for k, (_, flops) in enumerate(_SPECIALS)
    )
    # Few launches at a time: among many, some always wait for a thread that is not running.
    launch = device.best_s(_EMPTY, 0, threads, 2e-5 if threads > 1 else 1e-8) * 1e6
    launch = min(launch, LAUNCH_MOST_US)
    gemm = _gemm_gflops() * threads
    tiers = tuple(zip(TIERS, rates, strict=True))
    found = Calibration(launch, beyond, cheap, special, max(gemm, cheap), rates[0], cache, tiers)
    narrow = max(narrow if has_vectors else 0.0, found.contraction)
    return replace(
        found, wide=wide, narrow=narrow * (_TILES_FACTOR if has_tiles else 1.0), library=gemm
    )


def _bandwidth(device: _Device, nbytes: int, threads: int) -> float:
    """GB/s at best over a working set of `nbytes`: copying, adding two arrays, or only reading."""
    n = nbytes // 8
    guess = nbytes / 5e10
    copied = 2 * 4 * n / device.best_s(_COPY, n, threads, guess)
    summed = 4 * n / device.best_s(_SUM, n, threads, guess)
    added = 1.5 * 4 * n / device.best_s(_TRIAD, n, threads, guess)
    return max(copied, summed, added) / 1e9


def _gemm_gflops() -> float:
    """One core's matrix product in 10^9 operations a second."""
    gemm_at, _, setter_at = blas_pointers()
    gemm = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(gemm_at)
    a = np.ones((3, GEMM, GEMM), np.float32)
    size, plain = ctypes.c_int(GEMM), ctypes.c_char(b"N")
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    at = [a[k].ctypes.data for k in range(3)]
    s, p = ctypes.addressof(size), ctypes.addressof(plain)
    arguments = (p, p, s, s, s, ctypes.addressof(one), at[0], s, at[1], s, ctypes.addressof(zero))
    setter = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(setter_at) if setter_at else None
    before = setter(1) if setter else 0
    try:
        best = best_of(lambda: gemm(*arguments, at[2], s))
    finally:
        if setter:
            setter(before)
    return 2.0 * GEMM**3 / best / 1e9


def _at_least(many: Calibration, one: Calibration, count: int) -> Calibration:
    """What a noisy moment took from the threads together: alone they did better, and cores and
    the caches near them do not share."""
    pairs = zip(many.tiers, one.tiers, strict=True)
    return replace(
        many,
        gbytes_per_s=max(many.gbytes_per_s, one.gbytes_per_s),
        cheap=max(many.cheap, one.cheap * count),
        special=max(many.special, one.special * count),
        contraction=max(many.contraction, one.contraction * count),
        wide=max(many.wide, one.wide * count),
        narrow=max(many.narrow, one.narrow * count),
        cached_gbytes_per_s=max(many.cached_gbytes_per_s, one.cached_gbytes_per_s * count),
        tiers=tuple((size, max(a, b * count)) for (size, a), (_, b) in pairs),
        scalar=tuple((name, ns / count) for name, ns in one.scalar),
    )
