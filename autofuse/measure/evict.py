"""Making caches cold between samples.

How depends on the footprint (bytes of inputs, constants, outputs and workspace) against the
last-level cache: up to its size, exactly those lines are flushed from every cache (on x86-64; the
cost is in proportion to the footprint, so small workloads are sampled quickly); from there up to
4 times its size, a buffer of its size is overwritten by all cores; beyond that, one run leaves
little behind for the next and nothing is done. OpenMP's threads are awake when the sample starts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from autofuse.backends.base import Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.fingerprint import last_level_cache_bytes

FREE_FACTOR = 4

# Plain stores, one per line: memset of a large block may bypass the caches.
_TEXT = """
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
int32_t autofuse_flush(char **start, const int64_t *bytes, int64_t n) {
#if defined(__x86_64__)
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < bytes[i]; k += 64) _mm_clflush(start[i] + k);
    _mm_mfence();
    #pragma omp parallel
    { __asm__ volatile("" ::: "memory"); }
    return 1;
#else
    return 0;
#endif
}
int32_t autofuse_overwrite(volatile char *p, int64_t bytes) {
    #pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < bytes; k += 64) p[k] = (char)(p[k] + 1);
    return 1;
}
"""


class Evictor:
    """Empties caches; builds its helper (a fraction of a second, once per machine)."""

    def __init__(self, cache: BuildCache | None = None) -> None:
        source = Source("evict", _TEXT, ("-O2",))
        built = compile_program(Program((source,), "autofuse_flush", (), ()), cache)
        # Never unloaded: one small library per process.
        self._library = ctypes.CDLL(str(built.artifact.path))
        self._library.autofuse_flush.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
        self._library.autofuse_overwrite.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self._cache_bytes = last_level_cache_bytes()
        self._buffer: np.ndarray | None = None

    def overwrite(self) -> None:
        """Write through a buffer as large as the last-level cache."""
        if self._buffer is None:
            self._buffer = np.ones(self._cache_bytes, np.uint8)
        self._library.autofuse_overwrite(self._buffer.ctypes.data, self._buffer.nbytes)

    def for_arrays(self, arrays: Sequence[np.ndarray]) -> Callable[[], None]:
        """What to call before a cold run that touches only `arrays` (contiguous; kept alive)."""
        footprint = sum(a.nbytes for a in arrays)
        if footprint > FREE_FACTOR * self._cache_bytes:
            return lambda: None
        if footprint > self._cache_bytes or not self._library.autofuse_flush(None, None, 0):
            return self.overwrite
        count = len(arrays)
        starts = (ctypes.c_void_p * max(1, count))(*(a.ctypes.data & ~63 for a in arrays))
        sizes = (ctypes.c_int64 * max(1, count))(
            *(a.nbytes + (a.ctypes.data & 63) if a.nbytes else 0 for a in arrays)
        )
        flush = self._library.autofuse_flush

        def prepare(_keep: Sequence[np.ndarray] = tuple(arrays)) -> None:
            flush(starts, sizes, count)

        return prepare
