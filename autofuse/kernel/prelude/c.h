#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

typedef _Float16 af_f16;
typedef uint16_t af_bf16;

#define AF_INFF __builtin_inff()
#define AF_INF __builtin_inf()
#define AF_NANF __builtin_nanf("")
#define AF_NAN __builtin_nan("")
#define AF_INLINE static inline __attribute__((always_inline, const))

/* Vectors of a register tile, and the same where they need not be aligned. */
#define AF_VECTOR(T, N)                                                                      \
  typedef T af_##T##x##N __attribute__((vector_size(N * sizeof(T))));                        \
  typedef T af_##T##x##N##_u __attribute__((vector_size(N * sizeof(T)), aligned(sizeof(T)), may_alias));
AF_VECTOR(float, 1) AF_VECTOR(float, 2) AF_VECTOR(float, 4) AF_VECTOR(float, 8) AF_VECTOR(float, 16)
AF_VECTOR(double, 1) AF_VECTOR(double, 2) AF_VECTOR(double, 4) AF_VECTOR(double, 8)

/* glibc's vector math (libmvec): declared here so that it does not depend on -ffast-math. */
#if defined(__x86_64__) && defined(__GLIBC_PREREQ)
#define AF_LIBMVEC __GLIBC_PREREQ(2, 35)
#else
#define AF_LIBMVEC 0
#endif
#if AF_LIBMVEC
#define AF_SIMD __attribute__((simd("notinbranch"), const))
#else
#define AF_SIMD __attribute__((const))
#endif
#define AF_MATH1(fn) extern AF_SIMD float fn##f(float); extern AF_SIMD double fn(double);
#define AF_MATH2(fn) extern AF_SIMD float fn##f(float, float); extern AF_SIMD double fn(double, double);
AF_MATH1(exp) AF_MATH1(expm1) AF_MATH1(log) AF_MATH1(log1p) AF_MATH1(sin) AF_MATH1(cos)
AF_MATH1(tan) AF_MATH1(tanh) AF_MATH1(sinh) AF_MATH1(cosh) AF_MATH1(asin) AF_MATH1(acos)
AF_MATH1(atan) AF_MATH1(erf) AF_MATH2(pow) AF_MATH2(atan2)

/* Below these the result is denormal or zero, and libmvec leaves the vector for a scalar call on
 * every such element: masked attention would spend its time there. Denormals become zero, by a
 * factor and not by a choice, from which compilers conclude that clamping is not needed. */
AF_INLINE float af_exp_f32(float x)
{
  return expf(x < -87.0f ? -87.0f : x) * (x < -87.0f ? 0.0f : 1.0f);
}
AF_INLINE double af_exp_f64(double x)
{
  return exp(x < -708.0 ? -708.0 : x) * (x < -708.0 ? 0.0 : 1.0);
}

#define AF_FLOATS(T, D, S)                                                                   \
  AF_INLINE T af_abs_##D(T x) { return __builtin_fabs##S(x); }                               \
  AF_INLINE T af_floor_##D(T x) { return __builtin_floor##S(x); }                            \
  AF_INLINE T af_ceil_##D(T x) { return __builtin_ceil##S(x); }                              \
  AF_INLINE T af_rint_##D(T x) { return __builtin_rint##S(x); }                              \
  AF_INLINE T af_sqrt_##D(T x) { return __builtin_sqrt##S(x); }                              \
  AF_INLINE T af_rem_##D(T x, T y) { return __builtin_fmod##S(x, y); }                       \
  AF_INLINE bool af_isnan_##D(T x) { return x != x; }                                        \
  AF_INLINE bool af_isfinite_##D(T x) { return __builtin_fabs##S(x) < __builtin_inf##S(); }  \
  AF_INLINE T af_max_##D(T x, T y) { return x > y || x != x ? x : y; }                       \
  AF_INLINE T af_min_##D(T x, T y) { return x < y || x != x ? x : y; }
AF_FLOATS(float, f32, f)
AF_FLOATS(double, f64, )

#define AF_INTS(T, D, U)                                                                     \
  AF_INLINE T af_max_##D(T x, T y) { return x > y ? x : y; }                                 \
  AF_INLINE T af_min_##D(T x, T y) { return x < y ? x : y; }
#define AF_SIGNED(T, D, U)                                                                   \
  AF_INTS(T, D, U)                                                                           \
  AF_INLINE T af_abs_##D(T x) { return (T)(x < 0 ? (U)0 - (U)x : (U)x); }                    \
  AF_INLINE T af_div_##D(T x, T y)                                                           \
  { return y == 0 ? (T)-1 : y == -1 ? (T)((U)0 - (U)x) : (T)(x / y); }                       \
  AF_INLINE T af_rem_##D(T x, T y) { return y == 0 ? x : y == -1 ? (T)0 : (T)(x % y); }
#define AF_UNSIGNED(T, D, U)                                                                 \
  AF_INTS(T, D, U)                                                                           \
  AF_INLINE T af_abs_##D(T x) { return x; }                                                  \
  AF_INLINE T af_div_##D(T x, T y) { return y == 0 ? (T)-1 : (T)(x / y); }                   \
  AF_INLINE T af_rem_##D(T x, T y) { return y == 0 ? x : (T)(x % y); }
AF_SIGNED(int64_t, i64, uint64_t)
AF_SIGNED(int32_t, i32, uint32_t)
AF_SIGNED(int8_t, i8, uint8_t)
AF_UNSIGNED(uint32_t, u32, uint32_t)
AF_UNSIGNED(uint8_t, u8, uint8_t)
AF_INLINE bool af_max_bool(bool x, bool y) { return x | y; }
AF_INLINE bool af_min_bool(bool x, bool y) { return x & y; }

AF_INLINE uint32_t af_mulhi_u32(uint32_t x, uint32_t y) { return (uint32_t)(((uint64_t)x * y) >> 32); }

#define AF_BITS(A, DA, B, DB)                                                                \
  AF_INLINE B af_bits_##DA##_##DB(A x) { B y; __builtin_memcpy(&y, &x, sizeof y); return y; }
#define AF_BITS2(A, DA, B, DB) AF_BITS(A, DA, B, DB) AF_BITS(B, DB, A, DA)
AF_BITS2(float, f32, uint32_t, u32)
AF_BITS2(float, f32, int32_t, i32)
AF_BITS2(int32_t, i32, uint32_t, u32)
AF_BITS2(double, f64, int64_t, i64)
AF_BITS2(int8_t, i8, uint8_t, u8)

/* Copy past the cache; whole 64-byte lines only, ends by ordinary stores. */
#if defined(__AVX512F__)
#include <immintrin.h>
static inline void af_stream(void *to, const void *from, int64_t bytes)
{
  char *t = (char *)to;
  const char *f = (const char *)from, *const end = f + bytes;
  int64_t head = (int64_t)(-(uintptr_t)t & 63);
  head = head < bytes ? head : bytes;
  __builtin_memcpy(t, f, (uint64_t)head);
  t += head, f += head;
  for (; end - f >= 64; t += 64, f += 64)
    _mm512_stream_si512((__m512i *)t, _mm512_loadu_si512((const void *)f));
  __builtin_memcpy(t, f, (uint64_t)(end - f));
  _mm_sfence();
}
#elif defined(__AVX__)
#include <immintrin.h>
static inline void af_stream(void *to, const void *from, int64_t bytes)
{
  char *t = (char *)to;
  const char *f = (const char *)from, *const end = f + bytes;
  int64_t head = (int64_t)(-(uintptr_t)t & 31);
  head = head < bytes ? head : bytes;
  __builtin_memcpy(t, f, (uint64_t)head);
  t += head, f += head;
  for (; end - f >= 32; t += 32, f += 32)
    _mm256_stream_si256((__m256i *)t, _mm256_loadu_si256((const __m256i *)(const void *)f));
  __builtin_memcpy(t, f, (uint64_t)(end - f));
  _mm_sfence();
}
#else
static inline void af_stream(void *to, const void *from, int64_t bytes)
{
  __builtin_memcpy(to, from, (uint64_t)bytes);
}
#endif

AF_INLINE float af_load_f16(af_f16 x) { return (float)x; }
AF_INLINE af_f16 af_store_f16(float x) { return (af_f16)x; }
AF_INLINE float af_load_bf16(af_bf16 x) { return af_bits_u32_f32((uint32_t)x << 16); }
AF_INLINE af_bf16 af_store_bf16(float x)
{
  const uint32_t u = af_bits_f32_u32(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  return (af_bf16)(x != x ? 0x7fc0u : rounded);
}
