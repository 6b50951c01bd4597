"""Making caches cold between samples.

How depends on the footprint (bytes of inputs, constants, outputs and workspace) against the
last-level cache: up to its size, exactly those lines are flushed from every cache (on x86-64; the
cost is in proportion to the footprint, so small workloads are sampled quickly); from there up to
4 times its size, a buffer of its size is overwritten by all cores; beyond that, one run leaves
little behind for the next and nothing is done. The work is done on the kernels' own thread pool,
whose threads are therefore awake when the sample starts (those of any other pool would still be
spinning, on a core that the sample needs).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import numpy as np

from autofuse.backends.base import Program, Source
from autofuse.backends.cache import BuildCache
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.pool import pool_pointer
from autofuse.backends.machine import last_level_cache_bytes
from autofuse.backends.sealed import load_checked
from autofuse.limits import usable_cores

FREE_FACTOR = 4

# Plain stores, one per line: memset of a large block may bypass the caches.
_TEXT = """
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif
typedef void (*af_task)(void **, int64_t, int64_t);
typedef void (*af_parallel)(af_task, void **, int64_t, int);
static void nothing(void **args, int64_t first, int64_t last) {
    for (volatile int64_t i = first; i < last; i++) { (void)args; }
}
static void touch(void **args, int64_t first, int64_t last) {
    volatile char *p = (volatile char *)args[0];
    for (int64_t k = first * 64; k < last * 64; k += 64) p[k] = (char)(p[k] + 1);
}
int32_t autofuse_flush(char **start, const int64_t *bytes, int64_t n, void *pool, int threads) {
#if defined(__x86_64__)
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < bytes[i]; k += 64) _mm_clflush(start[i] + k);
    _mm_mfence();
    if (n) ((af_parallel)pool)(nothing, 0, 200000, threads);
    return 1;
#else
    return 0;
#endif
}
int32_t autofuse_overwrite(char *p, int64_t bytes, void *pool, int threads) {
    void *args[] = {p};
    ((af_parallel)pool)(touch, args, bytes / 64, threads);
    return 1;
}
"""


class Evictor:
    """Empties caches; builds its helper (a fraction of a second, once per machine)."""

    def __init__(self, cache: BuildCache | None = None) -> None:
        source = Source("evict", _TEXT, ("-O2",))
        built = compile_program(Program((source,), "autofuse_flush", (), ()), cache)
        # Never unloaded: one small library per process.
        self._library = load_checked(built.artifact.path, built.artifact.digest)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        flush, overwrite = self._library.autofuse_flush, self._library.autofuse_overwrite
        flush.argtypes = [pointer, pointer, number, pointer, ctypes.c_int]
        overwrite.argtypes = [pointer, number, pointer, ctypes.c_int]
        self._pool = (pool_pointer(), usable_cores())
        self._cache_bytes = last_level_cache_bytes()
        self._buffer: np.ndarray | None = None

    def overwrite(self) -> None:
        """Write through a buffer as large as the last-level cache."""
        if self._buffer is None:
            self._buffer = np.ones(self._cache_bytes, np.uint8)
        self._library.autofuse_overwrite(self._buffer.ctypes.data, self._buffer.nbytes, *self._pool)

    def for_arrays(self, arrays: Sequence[np.ndarray]) -> Callable[[], None]:
        """What to call before a cold run that touches only `arrays` (contiguous; kept alive)."""
        footprint = sum(a.nbytes for a in arrays)
        if footprint > FREE_FACTOR * self._cache_bytes:
            return lambda: None
        if footprint > self._cache_bytes or not self._can_flush():
            return self.overwrite
        count = len(arrays)
        starts = (ctypes.c_void_p * max(1, count))(*(a.ctypes.data & ~63 for a in arrays))
        sizes = (ctypes.c_int64 * max(1, count))(
            *(a.nbytes + (a.ctypes.data & 63) if a.nbytes else 0 for a in arrays)
        )
        flush, pool = self._library.autofuse_flush, self._pool

        def prepare(_keep: Sequence[np.ndarray] = tuple(arrays)) -> None:
            flush(starts, sizes, count, *pool)

        return prepare

    def _can_flush(self) -> bool:
        return bool(self._library.autofuse_flush(None, None, 0, *self._pool))
