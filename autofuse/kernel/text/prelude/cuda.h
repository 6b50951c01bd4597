typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define AF_INFF __int_as_float(0x7f800000)
#define AF_INF __longlong_as_double(0x7ff0000000000000LL)
#define AF_NANF __int_as_float(0x7fffffff)
#define AF_NAN __longlong_as_double(0x7fffffffffffffffLL)
#define AF_INLINE __device__ __forceinline__

/* Buffers as parameters, of kernels and of the functions here. AF_WORK is read and written. While
   a kernel runs, others may still write what it takes as AF_IN_LATER and use what it takes as
   AF_OUT_LATER: with const __restrict__ the compiler would load it as what nobody writes.
   The emulator defines AF_EMULATED and its own, which check every access. */
#ifndef AF_EMULATED
#define AF_IN(T, name) const T *__restrict__ name
#define AF_OUT(T, name) T *__restrict__ name
#define AF_WORK(T, name) T *name
#define AF_IN_LATER(T, name) const T *name
#define AF_OUT_LATER(T, name) T *name
#define AF_DYNAMIC(T, name) extern __shared__ __align__(16) T name[]
#endif

#define AF_FLOATS(T, D, S)                                                                   \
  AF_INLINE T af_abs_##D(T x) { return fabs##S(x); }                                         \
  AF_INLINE T af_floor_##D(T x) { return floor##S(x); }                                      \
  AF_INLINE T af_ceil_##D(T x) { return ceil##S(x); }                                        \
  AF_INLINE T af_rint_##D(T x) { return rint##S(x); }                                        \
  AF_INLINE T af_sqrt_##D(T x) { return sqrt##S(x); }                                        \
  AF_INLINE T af_rem_##D(T x, T y) { return fmod##S(x, y); }                                 \
  AF_INLINE bool af_isnan_##D(T x) { return x != x; }
AF_FLOATS(float, f32, f)
AF_FLOATS(double, f64, )
#define AF_EXTREMA(T, D)                                                                     \
  AF_INLINE T af_max_##D(T x, T y) { return x > y || x != x ? x : y; }                       \
  AF_INLINE T af_min_##D(T x, T y) { return x < y || x != x ? x : y; }
AF_EXTREMA(double, f64)
#ifdef AF_EMULATED
AF_EXTREMA(float, f32)
#else
/* One instruction since sm_80 (PTX ISA, max): NaN if one of them is. */
AF_INLINE float af_max_f32(float x, float y) { float z; asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
AF_INLINE float af_min_f32(float x, float y) { float z; asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
#endif
AF_INLINE bool af_isfinite_f32(float x) { return fabsf(x) < AF_INFF; }
AF_INLINE bool af_isfinite_f64(double x) { return fabs(x) < AF_INF; }
