"""What every C text of a reference begins with."""

from __future__ import annotations

from functools import lru_cache

from autofuse.graph.noise import Noise
from autofuse.kernel.text.dialects import C

TABLE = Noise.LENGTH
# Doubles are narrowed to halves in one rounding, as NumPy does, and to bf16 through f32, as
# ml_dtypes does. Vector variants of the C library's functions err by more than the scalar ones.
_PRELUDE = """
#include <string.h>
static inline af_f16 truth_f16(double x)
{
  const _Float16 y = (_Float16)x;
  af_f16 bits;
  memcpy(&bits, &y, sizeof bits);
  return bits;
}
#define af_store_f16 truth_f16
#define TRUTH_TABLE %d
typedef void (*truth_task)(void **, int64_t, int64_t);
typedef struct {
  uint64_t seed;
  const double *noise;
  void (*parallel)(truth_task, void **, int64_t, int64_t);
  int64_t threads;
  const void *const *constants;
} truth;
static inline void truth_run(truth *t, truth_task task, void **a, int64_t *starts, int64_t count,
                             int64_t rows, int64_t size)
{
  for (int64_t k = 0; k < count; k++) {
    t->seed = t->seed * 6364136223846793005u + 1442695040888963407u;
    starts[k] = (int64_t)((t->seed >> 33) %% TRUTH_TABLE);
  }
  if (size > 65536 && rows > 1 && t->threads > 1)
    t->parallel(task, a, rows, t->threads);
  else
    task(a, 0, rows);
}
""".replace("%d", str(TABLE)).replace("%%", "%")


@lru_cache(maxsize=1)
def prelude() -> str:
    """What every text begins with."""
    text = C.prelude.replace("extern AF_SIMD", "extern")
    return text + _PRELUDE
