
/* part: aligned_alloc */
void *aligned_alloc(__SIZE_TYPE__, __SIZE_TYPE__);
void free(void *);
void abort(void);

/* part: af_wide_ */
/* Narrow numbers that lie side by side as lanes of 32 bits. GCC converts a vector of 8 bytes one by
 * one; of its builtins alone it knows that they store nothing, which it does not of assembly. */
#define AF_WIDE(T, D, N, V)                                                                  \
  static inline __attribute__((always_inline)) af_int32_tx##N af_wide_##D##_x##N(const T *from) \
  { return (af_int32_tx##N)V; }
#define AF_WIDE_ALL(N, BYTES, WORDS)                                                         \
  AF_WIDE(int8_t, i8, N, BYTES(sx, int8_t)) AF_WIDE(uint8_t, u8, N, BYTES(zx, uint8_t))      \
  AF_WIDE(int16_t, i16, N, WORDS(sx, int16_t)) AF_WIDE(uint16_t, u16, N, WORDS(zx, uint16_t)) \
  AF_WIDE(af_bf16, bf16, N, WORDS(zx, uint16_t))
#define AF_CONVERTED(T, N)                                                                   \
  __builtin_convertvector(                                                                   \
    *(const T __attribute__((vector_size(N * sizeof(T)), aligned(1), may_alias)) *)from, af_int32_tx##N)
#define AF_CONVERTED_4(HOW, T) AF_CONVERTED(T, 4)
#define AF_CONVERTED_8(HOW, T) AF_CONVERTED(T, 8)
#define AF_CONVERTED_16(HOW, T) AF_CONVERTED(T, 16)
typedef int32_t af_4_bytes __attribute__((aligned(1), may_alias));
typedef int64_t af_8_bytes __attribute__((aligned(1), may_alias));
typedef char af_bytes __attribute__((vector_size(16), aligned(1), may_alias));
typedef short af_words __attribute__((vector_size(16), aligned(1), may_alias));
typedef short af_words_16 __attribute__((vector_size(32), aligned(1), may_alias));
#if defined(__AVX2__) && !defined(__clang__)
#define AF_BYTES_4(HOW, T) \
  __builtin_ia32_pmov##HOW##bd128((af_bytes)(af_int32_tx4){*(const af_4_bytes *)from, 0, 0, 0})
#define AF_WORDS_4(HOW, T) \
  __builtin_ia32_pmov##HOW##wd128((af_words)(af_int64_tx2){*(const af_8_bytes *)from, 0})
#define AF_BYTES_8(HOW, T) \
  __builtin_ia32_pmov##HOW##bd256((af_bytes)(af_int64_tx2){*(const af_8_bytes *)from, 0})
#define AF_WORDS_8(HOW, T) __builtin_ia32_pmov##HOW##wd256(*(const af_words *)from)
AF_WIDE_ALL(4, AF_BYTES_4, AF_WORDS_4) AF_WIDE_ALL(8, AF_BYTES_8, AF_WORDS_8)
#else
AF_WIDE_ALL(4, AF_CONVERTED_4, AF_CONVERTED_4) AF_WIDE_ALL(8, AF_CONVERTED_8, AF_CONVERTED_8)
#endif
#if defined(__AVX512F__) && !defined(__clang__)
#define AF_BYTES_16(HOW, T) __builtin_ia32_pmov##HOW##bd512_mask( \
  *(const af_bytes *)from, (af_int32_tx16){0}, (unsigned short)-1)
#define AF_WORDS_16(HOW, T) __builtin_ia32_pmov##HOW##wd512_mask( \
  *(const af_words_16 *)from, (af_int32_tx16){0}, (unsigned short)-1)
AF_WIDE_ALL(16, AF_BYTES_16, AF_WORDS_16)
#else
AF_WIDE_ALL(16, AF_CONVERTED_16, AF_CONVERTED_16)
#endif

/* part: af_pair */
/* Pairs of bf16: c + the products of both of `a` with both of each lane of `b`, sums in f32. */
#define AF_PAIRS(N)                                                                          \
  AF_INLINE af_floatx##N af_pairs_x##N(af_floatx##N c, int32_t a, af_int32_tx##N b)          \
  {                                                                                          \
    const union { af_int32_tx##N i; af_floatx##N f; } low = {b << 16}, high = {b & -65536};  \
    const union { int32_t i[2]; float f[2]; } x = {{(int32_t)((uint32_t)a << 16), a & -65536}}; \
    return c + low.f * x.f[0] + high.f * x.f[1];                                             \
  }
AF_PAIRS(1) AF_PAIRS(2) AF_PAIRS(4)
#if defined(__AVX512BF16__) && defined(__AVX512VL__)
/* No intrinsics: reading their header takes longer than compiling a kernel, and of their builtins the
 * types differ between compilers. */
#define AF_PAIRS_AT_ONCE(N)                                                                  \
  AF_INLINE af_floatx##N af_pairs_x##N(af_floatx##N c, int32_t a, af_int32_tx##N b)          \
  {                                                                                          \
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(c) : "v"((af_int32_tx##N){0} + a), "v"(b));         \
    return c;                                                                                \
  }
AF_PAIRS_AT_ONCE(8) AF_PAIRS_AT_ONCE(16)
#else
AF_PAIRS(8) AF_PAIRS(16)
#endif
static inline int32_t af_pair(const af_bf16 *from)
{
  int32_t pair;
  __builtin_memcpy(&pair, from, sizeof pair);
  return pair;
}

/* part: af_exp_ af_tanh_ af_erf_ */
/* exp as arithmetic that becomes vectors without a call (a minimax fit on half a doubling, which errs by
 * 2 units in the last place): 2^n times a polynomial of the rest, which is doubled so that 2^(n - 1) is no
 * larger than any number. n is rounded by adding a number so large that it has no fraction, and whose last
 * bits are then the exponent of 2^(n - 1). What is about to be denormal is zero. */
AF_INLINE float af_exp_f32(float x)
{
  const float whole = 12583038.0f; /* 1.5 * 2^23, and the exponent of 1/2 */
  const union { float f; int32_t i; } given = {x}; /* of positive floats the bits are in order, too */
  const union { int32_t i; float f; } most = {given.i < 0x42b30000 ? given.i : 0x42b30000}; /* 89.5 */
#ifdef __FP_FAST_FMAF
  const float t = AF_FMAF(most.f, 1.44269504f, whole), n = t - whole;
#else /* compilers that may reassociate would leave the large number out */
  const float n = __builtin_rintf(most.f * 1.44269504f), t = n + whole;
#endif
  const float r = AF_FMAF(n, 2.12194440e-4f, AF_FMAF(n, -0.693359375f, x));
  const float r2 = r * r; /* by pairs (Estrin): chains half as long, of which a core has more at once */
  const float high = 2.7629170328e-3f * r2 + (1.6737446687e-2f * r + 8.3336777348e-2f);
  const float sum = (high * r2 + (3.3333041157e-1f * r + 9.9999986888e-1f)) * r2 + (2.0f * r + 2.0f);
  const union { float f; int32_t i; } last = {t};
  const union { int32_t i; float f; } power = {(int32_t)((uint32_t)last.i << 23)};
  const union { float f; int32_t i; } found = {sum * power.f};
  const union { int32_t i; float f; } kept = {found.i & (x < -86.98f ? 0 : -1)};
  return kept.f;
}
/* tanh as a quotient of polynomials of x * x, a minimax fit up to 9.02 (from there on it rounds to 1) that
 * errs by 5 units in the last place. It takes half as long as libmvec's, and is no call, for which all
 * vectors would have to be put away. */
AF_INLINE float af_tanh_f32(float x)
{
  const float low = x > 9.02f ? 9.02f : x, c = low < -9.02f ? -9.02f : low, s = c * c;
  float p = 1.33842954e-8f, q = 7.79025129e-7f;
  p = p * s + 2.06358254e-5f;
  q = q * s + 3.28851776e-4f;
  p = p * s + 3.49745783e-3f;
  q = q * s + 2.58843619e-2f;
  p = p * s + 1.33826882e-1f;
  q = q * s + 4.67160076e-1f;
  p = p * s + 1.0f;
  q = q * s + 1.0f;
  const float y = c * p / q, most = y > 1.0f ? 1.0f : y;
  return most < -1.0f ? -1.0f : most;
}
/* erf likewise: it rounds to 1 from 3.92 on, and errs by 6 units in the last place. */
AF_INLINE float af_erf_f32(float x)
{
  const float low = x > 3.92f ? 3.92f : x, c = low < -3.92f ? -3.92f : low, s = c * c;
  float p = 2.05006177e-6f, q = 3.80905185e-5f;
  p = p * s + 2.84864887e-4f;
  q = q * s + 1.16241060e-3f;
  p = p * s + 3.76515905e-3f;
  q = q * s + 1.49683030e-2f;
  p = p * s + 5.27472757e-2f;
  q = q * s + 1.14104986e-1f;
  p = p * s + 1.90396875e-1f;
  q = q * s + 5.02067566e-1f;
  p = p * s + 1.12837911f;
  q = q * s + 1.0f;
  const float y = c * p / q, most = y > 1.0f ? 1.0f : y;
  return most < -1.0f ? -1.0f : most;
}
/* Below this the result is denormal or zero, and libmvec leaves the vector for a scalar call on every
 * such element: masked attention would spend its time there. Denormals become zero, by a factor and
 * not by a choice, from which compilers conclude that clamping is not needed. */
AF_INLINE double af_exp_f64(double x)
{
  return exp(x < -708.0 ? -708.0 : x) * (x < -708.0 ? 0.0 : 1.0);
}

/* part: af_load_ af_store_ */
#ifdef AF_NATIVE_F16
AF_INLINE float af_load_f16(af_f16 x) { return (float)x; }
AF_INLINE af_f16 af_store_f16(float x) { return (af_f16)x; }
#else
/* The exponent is moved by a factor, which also makes denormals right. */
AF_INLINE float af_load_f16(af_f16 x)
{
  const uint32_t u = (x & 0x7fffu) << 13, special = u >= 0x0f800000u ? 0x7f800000u : 0;
  const uint32_t made = af_bits_f32_u32(af_bits_u32_f32(u) * 0x1p112f) | special;
  return af_bits_u32_f32(made | (x & 0x8000u) << 16);
}
/* To nearest even: by carry, and of what becomes denormal by adding a number of the right size. What
 * is chosen between is masked, because choices turn into branches, which do not become vectors. */
AF_INLINE af_f16 af_store_f16(float x)
{
  const uint32_t u = af_bits_f32_u32(x), a = u & 0x7fffffffu;
  const uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  const uint32_t small = af_bits_f32_u32(af_bits_u32_f32(a) + 0.5f) - 0x3f000000u;
  const uint32_t is_small = -(uint32_t)(a < 0x38800000u), is_large = -(uint32_t)(a >= 0x477ff000u);
  const uint32_t large = 0x7c00u | (-(uint32_t)(a > 0x7f800000u) & 0x200u);
  const uint32_t finite = (small & is_small) | (normal & ~is_small);
  return (af_f16)((large & is_large) | (finite & ~is_large) | ((u >> 16) & 0x8000u));
}
#endif
AF_INLINE float af_load_bf16(af_bf16 x) { return af_bits_u32_f32((uint32_t)x << 16); }
AF_INLINE af_bf16 af_store_bf16(float x)
{
  const uint32_t u = af_bits_f32_u32(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (af_bf16)(x != x ? 0x7fc0u : rounded);
}

/* part: af_read_soon af_write_soon af_stream */
/* Lines that are needed soon: hints, which no address makes wrong. */
static inline void af_read_soon(const void *from, uint64_t bytes)
{
  for (uint64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)from + i, 0, 3);
}
static inline void af_write_soon(const void *to, uint64_t bytes)
{
  for (uint64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char *)to + i, 1, 3);
}

/* Copy past the cache; whole 64-byte lines only, ends by ordinary stores. What was copied is seen by
 * other cores after af_streamed(). */
#if defined(__AVX__)
/* Builtins, not immintrin.h: reading that takes longer than compiling a kernel. */
#if defined(__AVX512F__)
typedef long long af_line __attribute__((vector_size(64), may_alias));
#define AF_PAST(to, from) __builtin_ia32_movntdq512((long long __attribute__((vector_size(64))) *)(to), from)
#else
typedef long long af_line __attribute__((vector_size(32), may_alias));
#define AF_PAST(to, from) __builtin_ia32_movntdq256((long long __attribute__((vector_size(32))) *)(to), from)
#endif
#ifdef __clang__
#undef AF_PAST
#define AF_PAST(to, from) __builtin_nontemporal_store(from, to)
#endif
typedef af_line af_line_u __attribute__((aligned(1)));
static inline void af_streamed(void) { __builtin_ia32_sfence(); }
static inline void af_stream(void *to, const void *from, int64_t bytes)
{
  enum { LINE = sizeof(af_line) };
  char *t = (char *)to;
  const char *f = (const char *)from, *const end = f + bytes;
  int64_t head = (int64_t)(-(uintptr_t)t & (LINE - 1));
  head = head < bytes ? head : bytes;
  __builtin_memcpy(t, f, (uint64_t)head);
  t += head, f += head;
  for (; end - f >= LINE; t += LINE, f += LINE)
    AF_PAST((af_line *)t, *(const af_line_u *)f);
  __builtin_memcpy(t, f, (uint64_t)(end - f));
}
#else
static inline void af_streamed(void) {}
static inline void af_stream(void *to, const void *from, int64_t bytes)
{
  __builtin_memcpy(to, from, (uint64_t)bytes);
}
#endif

/* part: af_transpose_ */
/* to[j * to_step + i] = from[i * from_step + j] for i < rows, j < columns, elements of N bytes, in
 * blocks of W rows and columns: the numbers of a block lie in the order of two indices of as many
 * bits; laying both halves of all vectors out in turns moves every bit on by one, so in the end the
 * indices have changed places. Blocks at the edges overlap, so that they are whole too. Those of a
 * line of `to` are written one after another, past the cache where `stream` says so. */
#ifdef __clang__
#define AF_DEAL(N, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define AF_DEAL(N, a, b, ...) __builtin_shuffle(a, b, (af_row_##N){__VA_ARGS__})
#endif
#define AF_TRANSPOSE(N, W, U)                                                                \
  typedef U af_row_##N __attribute__((vector_size(N * W)));                                  \
  typedef U af_row_##N##_u __attribute__((vector_size(N * W), aligned(1), may_alias));       \
  typedef U af_one_##N __attribute__((may_alias));                                           \
  static inline __attribute__((always_inline)) void af_transpose_block_##N(                  \
    af_one_##N *to, int64_t to_step, const af_one_##N *from, int64_t from_step)              \
  {                                                                                          \
    af_row_##N v[W], w[W];                                                                   \
    _Pragma("GCC unroll 16") for (int i = 0; i < W; i++)                                     \
      v[i] = *(const af_row_##N##_u *)(from + i * from_step);                                \
    _Pragma("GCC unroll 4") for (int r = 1; r < W; r *= 2) {                                 \
      _Pragma("GCC unroll 8") for (int i = 0; i < W / 2; i++) {                              \
        w[2 * i] = AF_DEAL(N, v[i], v[i + W / 2], AF_LOW##W);                               \
        w[2 * i + 1] = AF_DEAL(N, v[i], v[i + W / 2], AF_HIGH##W);                          \
      }                                                                                      \
      _Pragma("GCC unroll 16") for (int i = 0; i < W; i++) v[i] = w[i];                      \
    }                                                                                        \
    _Pragma("GCC unroll 16") for (int i = 0; i < W; i++)                                     \
      *(af_row_##N##_u *)(to + i * to_step) = v[i];                                          \
  }                                                                                          \
  static inline void af_transpose_##N(void *target, int64_t to_step, const void *source,     \
    int64_t from_step, int64_t rows, int64_t columns, bool stream)                           \
  {                                                                                          \
    enum { LINE = 64 / N };                                                                  \
    af_one_##N *const to = target, line[W * LINE] __attribute__((aligned(64)));              \
    const af_one_##N *const from = source;                                                   \
    if (rows < W || columns < W) {                                                           \
      for (int64_t j = 0; j < columns; j++)                                                  \
        for (int64_t i = 0; i < rows; i++) to[j * to_step + i] = from[i * from_step + j];    \
      return;                                                                                \
    }                                                                                        \
    stream = stream && !(((uintptr_t)to | (uint64_t)to_step * N) & 63);                      \
    for (int64_t i = 0; i < rows; i += LINE)                                                 \
      for (int64_t j = 0; j < columns; j += W) {                                             \
        const bool past = stream && i + LINE <= rows;                                        \
        const int64_t y = j + W <= columns ? j : columns - W;                                \
        for (int64_t x = i; x < i + LINE && x < rows; x += W) {                              \
          const int64_t b = x + W <= rows ? x : rows - W;                                    \
          af_one_##N *const t = past ? line + b - i : to + y * to_step + b;                  \
          af_transpose_block_##N(t, past ? LINE : to_step, from + b * from_step + y, from_step); \
        }                                                                                    \
        for (int k = 0; past && k < W; k++)                                                  \
          af_stream(to + (y + k) * to_step + i, line + k * LINE, 64);                        \
      }                                                                                      \
  }
#if defined(__AVX512F__)
AF_TRANSPOSE(1, 16, uint8_t) AF_TRANSPOSE(2, 16, uint16_t)
AF_TRANSPOSE(4, 16, uint32_t) AF_TRANSPOSE(8, 8, uint64_t)
#elif defined(__AVX2__)
AF_TRANSPOSE(1, 16, uint8_t) AF_TRANSPOSE(2, 16, uint16_t)
AF_TRANSPOSE(4, 8, uint32_t) AF_TRANSPOSE(8, 4, uint64_t)
#else
AF_TRANSPOSE(1, 16, uint8_t) AF_TRANSPOSE(2, 8, uint16_t)
AF_TRANSPOSE(4, 4, uint32_t) AF_TRANSPOSE(8, 4, uint64_t)
#endif
