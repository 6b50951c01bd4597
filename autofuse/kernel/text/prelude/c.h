/* Parts that no text below mentions are left out (see backends/heads.py): reading them, and the
 * headers of C, takes as long as compiling a small kernel. */
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

/* Keeps a vector in its register: gcc would load it again for every multiply-add that uses it, and a
 * core has fewer loads than multiply-adds. Vectors that are no register of this processor are left. */
#if defined(__aarch64__)
#define AF_REGISTER "+w"
#else
#define AF_REGISTER "+v"
#endif
#if defined(__AVX512F__)
#define AF_REGISTER_BYTES 64
#elif defined(__AVX__)
#define AF_REGISTER_BYTES 32
#elif defined(__SSE2__) || defined(__aarch64__)
#define AF_REGISTER_BYTES 16
#else
#define AF_REGISTER_BYTES 0
#endif
#define AF_KEEP(v) \
  if (sizeof(v) >= 16 && sizeof(v) <= AF_REGISTER_BYTES) __asm__("" : AF_REGISTER(v))

/* Two vectors laid out in turns: LOW of their first halves, HIGH of their second ones. */
#ifdef __clang__
#define AF_TURNS(I, N, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define AF_TURNS(I, N, a, b, ...) __builtin_shuffle(a, b, (af_##I##x##N){__VA_ARGS__})
#endif
#define AF_LOW16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define AF_HIGH16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define AF_LOW8 0, 8, 1, 9, 2, 10, 3, 11
#define AF_HIGH8 4, 12, 5, 13, 6, 14, 7, 15
#define AF_LOW4 0, 4, 1, 5
#define AF_HIGH4 2, 6, 3, 7
#define AF_LOW2 0, 2
#define AF_HIGH2 1, 3
AF_VECTOR(int32_t, 1) AF_VECTOR(int32_t, 2) AF_VECTOR(int32_t, 4) AF_VECTOR(int32_t, 8)
AF_VECTOR(int32_t, 16) AF_VECTOR(int64_t, 2) AF_VECTOR(int64_t, 4) AF_VECTOR(int64_t, 8)

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

/* a * b + c, which compilers that may reassociate leave as it is where it is one instruction. */
#ifdef __FP_FAST_FMAF
#define AF_FMAF(a, b, c) __builtin_fmaf(a, b, c)
#else
#define AF_FMAF(a, b, c) ((a) * (b) + (c))
#endif
#define AF_FLOATS(T, D, S)                                                                   \
  AF_INLINE T af_abs_##D(T x) { return __builtin_fabs##S(x); }                               \
  AF_INLINE T af_floor_##D(T x) { return __builtin_floor##S(x); }                            \
  AF_INLINE T af_ceil_##D(T x) { return __builtin_ceil##S(x); }                              \
  AF_INLINE T af_rint_##D(T x) { return __builtin_rint##S(x); }                              \
  AF_INLINE T af_sqrt_##D(T x) { return __builtin_sqrt##S(x); }                              \
  AF_INLINE bool af_isnan_##D(T x) { return x != x; }                                        \
  AF_INLINE bool af_isfinite_##D(T x) { return __builtin_fabs##S(x) < __builtin_inf##S(); }  \
  AF_INLINE T af_max_##D(T x, T y) { const T m = y > x ? y : x; return y != y ? y : m; }     \
  AF_INLINE T af_min_##D(T x, T y) { const T m = y < x ? y : x; return y != y ? y : m; }
AF_FLOATS(float, f32, f)
AF_FLOATS(double, f64, )

AF_INLINE float af_rem_f32(float x, float y) { return __builtin_fmodf(x, y); }
AF_INLINE double af_rem_f64(double x, double y) { return __builtin_fmod(x, y); }
/* The same in lanes, where a call of C's function would keep a whole loop scalar. A quotient is at
   most 2^277 and each turn takes 50 bits of it; what is left is exact, for it is a multiple of a bit
   of q * b and has 25 of them. The last quotient is off by one at most, to either side of 0. */
#ifdef __FP_FAST_FMA
#define AF_REM_TURN r = __builtin_fma(-__builtin_trunc(r * inverse), b, r);
AF_INLINE float af_lane_rem_f32(float x, float y)
{
  const double b = __builtin_fabs((double)y), inverse = 1.0 / b;
  double r = __builtin_fabs((double)x);
  AF_REM_TURN AF_REM_TURN AF_REM_TURN AF_REM_TURN AF_REM_TURN AF_REM_TURN
  r += r < 0.0 ? b : 0.0;
  r += r < 0.0 ? b : 0.0;
  r -= r >= b ? b : 0.0;
  const float rest = __builtin_copysignf((float)r, x);
  return b == __builtin_inf() && __builtin_fabsf(x) < __builtin_inff() ? x : rest;
}
#else
AF_INLINE float af_lane_rem_f32(float x, float y) { return __builtin_fmodf(x, y); }
#endif

/* Quotients of 32 bits in lanes, for which processors have no instruction: those of f64, cut off, are
   exact, since a quotient that is no whole number is further from the next one than half a bit of
   53. Not so where a compiler may make products of them, which GCC tells from version 12 on. Only
   signed numbers have conversions everywhere: others are moved by 2^31. */
#if !defined __RECIPROCAL_MATH__ && !defined __clang__ && __GNUC__ >= 12
AF_INLINE int32_t af_quotient_i32(int32_t x, int32_t y) { return (int32_t)((double)x / (double)y); }
AF_INLINE double af_moved_u32(uint32_t x)
{ return (double)(int32_t)(x ^ 0x80000000u) + 2147483648.0; }
AF_INLINE uint32_t af_quotient_u32(uint32_t x, uint32_t y)
{
  const double q = __builtin_trunc(af_moved_u32(x) / af_moved_u32(y));
  return (uint32_t)(int32_t)(q - 2147483648.0) ^ 0x80000000u;
}
AF_INLINE int32_t af_lane_div_i32(int32_t x, int32_t y)
{
  const int32_t q = af_quotient_i32(x, (y == 0) | (y == -1) ? 1 : y);
  return y == 0 ? -1 : y == -1 ? (int32_t)(0u - (uint32_t)x) : q;
}
AF_INLINE int32_t af_lane_rem_i32(int32_t x, int32_t y)
{
  const int32_t d = (y == 0) | (y == -1) ? 1 : y, q = af_quotient_i32(x, d);
  return y == 0 ? x : (int32_t)((uint32_t)x - (uint32_t)q * (uint32_t)d);
}
AF_INLINE uint32_t af_lane_div_u32(uint32_t x, uint32_t y)
{ return y == 0 ? ~0u : af_quotient_u32(x, y == 0 ? 1u : y); }
AF_INLINE uint32_t af_lane_rem_u32(uint32_t x, uint32_t y)
{
  const uint32_t d = y == 0 ? 1u : y;
  return y == 0 ? x : x - af_quotient_u32(x, d) * d;
}
#else
#define af_lane_div_i32 af_div_i32
#define af_lane_rem_i32 af_rem_i32
#define af_lane_div_u32 af_div_u32
#define af_lane_rem_u32 af_rem_u32
#endif

AF_INLINE uint32_t af_mulhi_u32(uint32_t x, uint32_t y) { return (uint32_t)(((uint64_t)x * y) >> 32); }

#define AF_BITS(A, DA, B, DB)                                                                \
  AF_INLINE B af_bits_##DA##_##DB(A x) { B y; __builtin_memcpy(&y, &x, sizeof y); return y; }
#define AF_BITS2(A, DA, B, DB) AF_BITS(A, DA, B, DB) AF_BITS(B, DB, A, DA)
AF_BITS2(float, f32, uint32_t, u32)
AF_BITS2(float, f32, int32_t, i32)
AF_BITS2(int32_t, i32, uint32_t, u32)
AF_BITS2(double, f64, uint64_t, u64)
AF_BITS2(double, f64, int64_t, i64)
AF_BITS2(int64_t, i64, uint64_t, u64)
AF_BITS2(int16_t, i16, uint16_t, u16)
AF_BITS2(int8_t, i8, uint8_t, u8)
