"""`numpy_parts` in compiled code, and fingerprints of arrays; NumPy's where there is no compiler.

What NumPy does in a dozen passes over temporaries is one pass here, on the kernels' own thread
pool (any other pool's threads would still be spinning when samples are taken). The library is built
once per machine, when an array is large enough.

A fingerprint tells whether bytes are what they were: blocks of 64-bit words, each mixed by a
multiplication and a rotation (both one to one, so one changed word always shows), and the blocks'
numbers through BLAKE2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from autofuse.backends.base import CompileError, CompilerMissing, LaunchError, Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.pool import pool_pointer
from autofuse.backends.sealed import load_checked
from autofuse.limits import usable_cores
from autofuse.measure.check.parts import PART, Held, HeldPart, numpy_parts
from autofuse.ops.dtypes import DType

Fingerprints = tuple[bytes, ...]

_BLOCK_BYTES = 1 << 20
# Smaller arrays are done before a library is loaded, let alone built.
WORTH_BYTES = 1 << 18
_FLAGS = ("-O2", "-ftree-vectorize", "-march=native", "-fno-math-errno", "-fno-trapping-math")
_FLOATS = {DType.F64: 0, DType.F32: 1, DType.F16: 2, DType.BF16: 3}
_TEXT = r"""
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef void (*af_task)(void **, int64_t, int64_t);
typedef void (*af_parallel)(af_task, void **, int64_t, int);
typedef struct {
  const void *values, *expected;
  const float *tolerance;
  int64_t count, part;
  double rms, norm;
  double *worst, *square;
  int64_t *beyond, *first, *broken;
} af_job;
enum { STEP = 256 };

static double of_f64(const void *p, int64_t i) { return ((const double *)p)[i]; }
static double of_f32(const void *p, int64_t i) { return ((const float *)p)[i]; }
static double of_bf16(const void *p, int64_t i) {
  const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
  float found;
  memcpy(&found, &bits, 4);
  return found;
}
static double of_f16(const void *p, int64_t i) {
  const uint16_t half = ((const uint16_t *)p)[i];
  const uint32_t bits = (uint32_t)(half & 0x7fff) << 13;
  float size;
  memcpy(&size, &bits, 4);
  size = (half >> 10 & 31) != 31 ? size * 0x1p112f : half & 1023 ? NAN : INFINITY;
  return half >> 15 ? -size : size;
}

#define FLOATS(OF)                                                                              \
  static void part_##OF(void **args, int64_t from, int64_t to) {                                \
    const af_job *job = args[0];                                                                \
    const double *expected = job->expected, rms = job->rms, norm = job->norm;                   \
    const float *tolerance = job->tolerance;                                                    \
    double error[STEP], got[STEP];                                                              \
    for (int64_t part = from; part < to; part++) {                                              \
      double worst = 0, square = 0;                                                             \
      int64_t beyond = 0, first = -1, broken = -1, end = (part + 1) * job->part;                \
      if (end > job->count) end = job->count;                                                   \
      for (int64_t at = part * job->part; at < end; at += STEP) {                               \
        const int n = end - at < STEP ? (int)(end - at) : STEP;                                 \
        int bad = 0;                                                                            \
        for (int i = 0; i < n; i++) got[i] = OF(job->values, at + i);                           \
        for (int i = 0; i < n; i++) {                                                           \
          error[i] = fabs(got[i] - expected[at + i]);                                           \
          bad |= !(error[i] <= (double)tolerance[at + i]);                                      \
        }                                                                                       \
        for (int i = 0; bad && i < n; i++) {                                                    \
          const double ref = expected[at + i], room = tolerance[at + i];                        \
          if (error[i] <= room) continue;                                                       \
          error[i] = 0;                                                                         \
          if (got[i] == ref || (isnan(got[i]) && isnan(ref)) || isinf(room)) continue;          \
          if (!beyond++) first = at + i;                                                        \
          if (broken < 0 && !isfinite(got[i]) && isfinite(ref)) broken = at + i;                \
        }                                                                                       \
        _Pragma("omp simd reduction(max:worst) reduction(+:square)")                            \
        for (int i = 0; i < n; i++) {                                                           \
          const double e = tolerance[at + i] >= FLT_MAX ? 0 : error[i];                         \
          const double weight = fabs(expected[at + i]) + rms;                                   \
          const double ratio = e / (weight < DBL_MIN ? DBL_MIN : weight);                       \
          worst = ratio > worst ? ratio : worst;                                                \
          square += (e / norm) * (e / norm);                                                    \
        }                                                                                       \
      }                                                                                         \
      job->worst[part] = worst, job->square[part] = norm > 0 ? square : 0;                      \
      job->beyond[part] = beyond, job->first[part] = first, job->broken[part] = broken;         \
    }                                                                                           \
  }
FLOATS(of_f64)
FLOATS(of_f32)
FLOATS(of_f16)
FLOATS(of_bf16)

#define WHOLE(TYPE)                                                                             \
  static void part_##TYPE(void **args, int64_t from, int64_t to) {                              \
    const af_job *job = args[0];                                                                \
    const TYPE *values = job->values, *expected = job->expected;                                \
    for (int64_t part = from; part < to; part++) {                                              \
      int64_t beyond = 0, first = -1, end = (part + 1) * job->part;                             \
      if (end > job->count) end = job->count;                                                   \
      for (int64_t i = part * job->part; i < end; i++)                                          \
        if (values[i] != expected[i] && job->tolerance[i] < FLT_MAX && !beyond++) first = i;    \
      job->worst[part] = job->square[part] = 0;                                                 \
      job->beyond[part] = beyond, job->first[part] = first, job->broken[part] = -1;             \
    }                                                                                           \
  }
WHOLE(uint8_t)
WHOLE(uint16_t)
WHOLE(uint32_t)
WHOLE(uint64_t)

void autofuse_parts(af_job *job, int kind, int exact, void *pool, int threads) {
  static const af_task floats[] = {part_of_f64, part_of_f32, part_of_f16, part_of_bf16};
  const af_task task = !exact ? floats[kind]
      : kind == 1 ? part_uint8_t : kind == 2 ? part_uint16_t
      : kind == 4 ? part_uint32_t : part_uint64_t;
  void *args[] = {job};
  ((af_parallel)pool)(task, args, (job->count + job->part - 1) / job->part, threads);
}

enum { LANES = 8 };
static uint64_t mixed(uint64_t h, uint64_t word) {
  h = (h ^ word) * 0x9e3779b97f4a7c15u;
  return h << 29 | h >> 35;
}
static void mix(void **args, int64_t from, int64_t to) {
  const char *data = args[0];
  const int64_t bytes = *(const int64_t *)args[1], block = *(const int64_t *)args[2];
  uint64_t *found = args[3];
  for (int64_t b = from; b < to; b++) {
    const char *at = data + b * block;
    int64_t left = bytes - b * block;
    uint64_t lanes[LANES], words[LANES], h = 0;
    if (left > block) left = block;
    for (int k = 0; k < LANES; k++) lanes[k] = k + 1;
    for (; left >= (int64_t)sizeof words; left -= sizeof words, at += sizeof words) {
      memcpy(words, at, sizeof words);
      for (int k = 0; k < LANES; k++) lanes[k] = mixed(lanes[k], words[k]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, at, left);
    for (int k = 0; k < LANES; k++) h = mixed(mixed(h, lanes[k]), words[k]);
    found[b] = h;
  }
}
void autofuse_mix(
    const void *data, int64_t bytes, int64_t block, uint64_t *found, void *pool, int threads) {
  void *args[] = {(void *)data, &bytes, &block, found};
  ((af_parallel)pool)(mix, args, (bytes + block - 1) / block, threads);
}
"""


def parts(flat: np.ndarray, held: Held) -> Iterable[HeldPart]:
    """As `numpy_parts`; sums differ by rounding."""
    library = compiled() if flat.nbytes >= WORTH_BYTES else None
    return numpy_parts(flat, held) if library is None else library.parts(flat, held)


def fingerprints(arrays: Sequence[np.ndarray]) -> Fingerprints:
    """Of each array; of arrays of equal sizes they differ where any byte does, but for one chance
    in 2^64."""
    return tuple(map(_fingerprint, arrays))


def _fingerprint(array: np.ndarray) -> bytes:
    data = _bytes(array)
    library = compiled() if data.size >= WORTH_BYTES else None
    mixed = data if library is None else library.mixed(data)
    return blake2b(mixed.data, digest_size=16).digest()


@lru_cache(maxsize=1)
def compiled() -> Compiled | None:
    """The library, where there is a compiler."""
    try:
        return Compiled()
    except (CompileError, CompilerMissing, LaunchError, OSError):
        return None


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class _Job(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("values", "expected", "tolerance")),
        *((name, ctypes.c_int64) for name in ("count", "part")),
        *((name, ctypes.c_double) for name in ("rms", "norm")),
        *((name, ctypes.c_void_p) for name in ("worst", "square", "beyond", "first", "broken")),
    ]


class Compiled:
    """Raises CompileError, CompilerMissing, LaunchError and OSError where it cannot be built."""

    def __init__(self) -> None:
        program = Program((Source("comparing", _TEXT, _FLAGS),), "autofuse_parts", (), ())
        built = compile_program(program).artifact
        # Never unloaded: one small library per process.
        self._library = load_checked(built.path, built.digest)
        self._pool = (ctypes.c_void_p(pool_pointer()), usable_cores())

    def parts(self, flat: np.ndarray, held: Held) -> Iterable[HeldPart]:
        """As `numpy_parts`; sums differ by rounding."""
        count = -(-flat.size // PART)
        reals, places = np.empty((2, count)), np.empty((3, count), np.int64)
        values, expected = np.ascontiguousarray(flat), np.ascontiguousarray(held.expected)
        tolerance = np.ascontiguousarray(held.tolerance, np.float32)
        job = _Job(
            *(a.ctypes.data for a in (values, expected, tolerance)),
            flat.size, PART, held.rms, held.norm,
            *(row.ctypes.data for row in (*reals, *places)),
        )  # fmt: skip
        kind = flat.itemsize if held.exact else _kind(flat.dtype)
        self._library.autofuse_parts(ctypes.byref(job), kind, int(held.exact), *self._pool)
        return [HeldPart(*row) for row in zip(*reals.tolist(), *places.tolist(), strict=True)]

    def mixed(self, data: np.ndarray) -> np.ndarray:
        """A number (u64) of each block of an array of bytes."""
        size = ctypes.c_int64
        found = np.zeros(-(-data.size // _BLOCK_BYTES), np.uint64)
        places = ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(found.ctypes.data)
        sizes = size(data.size), size(_BLOCK_BYTES)
        self._library.autofuse_mix(places[0], *sizes, places[1], *self._pool)
        return found


def _kind(dtype: np.dtype) -> int:
    return next(kind for one, kind in _FLOATS.items() if one.numpy == dtype)
