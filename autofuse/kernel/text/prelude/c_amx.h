
/* part: af_amx AF_AMX */
/* AMX: tiles of at most 16 rows of 64 bytes in registers. `shape` has the rows of tile i in byte i; to
 * change it costs as much as ten products of tiles, and a thread that holds tiles is dear to switch. By
 * text and not by intrinsics, as pairs are. */
#if defined(__AMX_BF16__) && defined(__x86_64__) && !defined(AF_MODEL_AMX)
typedef struct { uint64_t shape; } af_amx;
static inline void af_amx_shape(af_amx *amx, uint64_t shape)
{
  struct { uint8_t palette, start, zero[14]; uint16_t bytes[16]; uint8_t rows[16]; }
    chosen __attribute__((aligned(64))) = {.palette = 1};
  if (amx->shape == shape) return;
  for (int i = 0; i < 8; i++) {
    chosen.rows[i] = (uint8_t)(shape >> 8 * i);
    chosen.bytes[i] = chosen.rows[i] ? 64 : 0; /* there are none without the others */
  }
  __asm__ volatile("ldtilecfg %0" : : "m"(chosen));
  amx->shape = shape;
}
static inline void af_amx_end(af_amx *amx)
{
  if (amx->shape) __asm__ volatile("tilerelease");
}
#define AF_AMX_ZERO(amx, t) __asm__ volatile("tilezero %%tmm" #t ::)
#define AF_AMX_LOAD(amx, t, from, step) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t     \
  :: "r"((const void *)(from)), "r"((int64_t)(step)) : "memory")
#define AF_AMX_STORE(amx, t, to, step) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"  \
  :: "r"((void *)(to)), "r"((int64_t)(step)) : "memory")
#define AF_AMX_PAIRS(amx, c, a, b) \
  __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#else
/* What these instructions do, in plain C (Intel SDM, volume 2). */
typedef union { float f[16]; uint16_t h[32]; } af_amx_row;
typedef struct { uint64_t shape; af_amx_row tile[8][16]; } af_amx;
#define AF_AMX_ROWS(amx, t) (int)((amx)->shape >> 8 * (t) & 255)
static inline void af_amx_shape(af_amx *amx, uint64_t shape) { amx->shape = shape; }
static inline void af_amx_end(af_amx *amx) { (void)amx; }
static inline void af_amx_zero(af_amx *amx, int t)
{
  __builtin_memset(amx->tile[t], 0, sizeof amx->tile[t]);
}
static inline void af_amx_load(af_amx *amx, int t, const void *from, int64_t step)
{
  for (int r = 0; r < AF_AMX_ROWS(amx, t); r++)
    __builtin_memcpy(&amx->tile[t][r], (const char *)from + r * step, 64);
}
static inline void af_amx_store(af_amx *amx, int t, void *to, int64_t step)
{
  for (int r = 0; r < AF_AMX_ROWS(amx, t); r++)
    __builtin_memcpy((char *)to + r * step, &amx->tile[t][r], 64);
}
static inline void af_amx_pairs(af_amx *amx, int c, int a, int b)
{
  for (int r = 0; r < AF_AMX_ROWS(amx, c); r++)
    for (int k = 0; k < AF_AMX_ROWS(amx, b); k++)
      for (int i = 0; i < 16; i++)
        for (int half = 0; half < 2; half++) {
          const uint32_t x = (uint32_t)amx->tile[a][r].h[2 * k + half] << 16;
          const uint32_t y = (uint32_t)amx->tile[b][k].h[2 * i + half] << 16;
          amx->tile[c][r].f[i] += af_bits_u32_f32(x) * af_bits_u32_f32(y);
        }
}
#define AF_AMX_ZERO(amx, t) af_amx_zero(amx, t)
#define AF_AMX_LOAD(amx, t, from, step) af_amx_load(amx, t, from, step)
#define AF_AMX_STORE(amx, t, to, step) af_amx_store(amx, t, to, step)
#define AF_AMX_PAIRS(amx, c, a, b) af_amx_pairs(amx, c, a, b)
#endif
/* The last terms of so many rows, fewer than a tile has, with zeros behind them: whatever follows in
 * memory belongs to others. */
static inline void af_amx_rest(af_bf16 *to, const af_bf16 *from, int64_t step, int rows, int64_t terms)
{
  __builtin_memset(to, 0, (uint64_t)rows * 64);
  for (int r = 0; r < rows; r++)
    __builtin_memcpy(to + r * 32, from + r * step, (uint64_t)terms * 2);
}
