/* Names of CUDA. */
#define AF_ATOMIC(NAME, BODY)                                                                \
  template <class T> T NAME(T *p, typename af::Same<T>::type v)                              \
  { return af::atomic(p, [=](T x) -> T { return BODY; }); }                                  \
  template <class T> T NAME(const af::Out<T> &p, typename af::Same<T>::type v)               \
  { return af::atomic(p, [=](T x) -> T { return BODY; }); }
AF_ATOMIC(atomicAdd, x + v)
AF_ATOMIC(atomicSub, x - v)
AF_ATOMIC(atomicExch, v)
AF_ATOMIC(atomicMin, v < x ? v : x)
AF_ATOMIC(atomicMax, v > x ? v : x)
AF_ATOMIC(atomicAnd, x & v)
AF_ATOMIC(atomicOr, x | v)
AF_ATOMIC(atomicXor, x ^ v)
AF_ATOMIC(atomicInc, x >= v ? 0 : x + 1)
AF_ATOMIC(atomicDec, x == 0 || x > v ? v : x - 1)
template <class P, class T> T af_cas(const P &p, T wanted, T made)
{ return af::atomic(p, [=](T x) -> T { return x == wanted ? made : x; }); }
template <class T>
T atomicCAS(T *p, typename af::Same<T>::type wanted, typename af::Same<T>::type made)
{ return af_cas(p, wanted, made); }
template <class T> T atomicCAS(
    const af::Out<T> &p, typename af::Same<T>::type wanted, typename af::Same<T>::type made)
{ return af_cas(p, wanted, made); }

template <class T> T __shfl_sync(unsigned mask, T x, int lane, int width = 32)
{ return af::lanes(af::SHUFFLE, mask, x, lane, width); }
template <class T> T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32)
{ return af::lanes(af::SHUFFLE_UP, mask, x, (int)delta, width); }
template <class T> T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32)
{ return af::lanes(af::SHUFFLE_DOWN, mask, x, (int)delta, width); }
template <class T> T __shfl_xor_sync(unsigned mask, T x, int flip, int width = 32)
{ return af::lanes(af::SHUFFLE_XOR, mask, x, flip, width); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { af::collective(af::SYNC, mask, 0, 0, 32); }
inline unsigned __ballot_sync(unsigned mask, int p)
{ return (unsigned)af::collective(af::BALLOT, mask, p != 0, 0, 32); }
inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
inline int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, p) == mask; }
template <class T> unsigned __match_any_sync(unsigned mask, T x)
{ uint64_t b = 0; memcpy(&b, &x, sizeof x); return (unsigned)af::collective(af::MATCH, mask, b, 0, 32); }
#define AF_REDUCE(NAME, T, KIND)                                                             \
  inline T NAME(unsigned mask, T x) { return af::lanes(af::KIND, mask, x, 0, 32); }
AF_REDUCE(__reduce_add_sync, unsigned, SUM)
AF_REDUCE(__reduce_add_sync, int, SUM)
AF_REDUCE(__reduce_min_sync, unsigned, MIN_UNSIGNED)
AF_REDUCE(__reduce_min_sync, int, MIN_SIGNED)
AF_REDUCE(__reduce_max_sync, unsigned, MAX_UNSIGNED)
AF_REDUCE(__reduce_max_sync, int, MAX_SIGNED)
AF_REDUCE(__reduce_and_sync, unsigned, ALL_BITS)
AF_REDUCE(__reduce_or_sync, unsigned, ANY_BITS)
AF_REDUCE(__reduce_xor_sync, unsigned, ODD_BITS)

inline void __threadfence() { af::fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { af::fence(); }
inline void __nanosleep(unsigned) { af::yield(); }
[[noreturn]] inline void __trap() { af::fail("trapped"); }

/* Cache hints are loads and stores. */
#define AF_HINT(NAME) template <class P> auto NAME(const P &p) { return p[0]; }                \
  template <class T> T NAME(const af::Out<T> &p) { return (T)*p; }
AF_HINT(__ldg) AF_HINT(__ldca) AF_HINT(__ldcg) AF_HINT(__ldcs) AF_HINT(__ldlu)
template <class T> T __ldcv(const af::Out<T> &p) { return af::load_acquire(p); }
#define AF_STORE(NAME)                                                                       \
  template <class T> void NAME(const af::Out<T> &p, typename af::Same<T>::type v) { *p = v; }
AF_STORE(__stcs) AF_STORE(__stcg) AF_STORE(__stwb) AF_STORE(__stwt)

inline float __int_as_float(int x) { return af::f32_bits((unsigned)x); }
inline float __uint_as_float(unsigned x) { return af::f32_bits(x); }
inline int __float_as_int(float x) { return (int)af::bits_f32(x); }
inline unsigned __float_as_uint(float x) { return af::bits_f32(x); }
inline double __longlong_as_double(long long x) { double y; memcpy(&y, &x, 8); return y; }
inline long long __double_as_longlong(double x) { long long y; memcpy(&y, &x, 8); return y; }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
inline int __mulhi(int x, int y) { return (int)((int64_t)x * y >> 32); }
inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{ return (unsigned long long)((unsigned __int128)x * y >> 64); }
inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x)
{ unsigned y = 0; for (int k = 0; k < 32; k++) y |= (x >> k & 1) << (31 - k); return y; }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
  const uint64_t both = (uint64_t)y << 32 | x;
  unsigned made = 0;
  for (int k = 0; k < 4; k++) {
    const unsigned byte = (unsigned)(both >> 8 * (s >> 4 * k & 7)) & 255;
    made |= (s >> 4 * k & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * k;
  }
  return made;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{ return (unsigned)((((uint64_t)high << 32 | low) << (n & 31)) >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{ return (unsigned)(((uint64_t)high << 32 | low) >> (n & 31)); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 1.0f ? 1.0f : x > 0.0f ? x : 0.0f; }
inline int __float2int_rn(float x) { return (int)rintf(x); }
inline int __float2int_rz(float x) { return (int)x; }
template <class T> T min(T x, T y) { return y < x ? y : x; }
template <class T> T max(T x, T y) { return x < y ? y : x; }
/* Macros, because the C library declares some of these names. */
#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((x) / (y))
#define __fadd_rn(x, y) ((float)(x) + (float)(y))
#define __fsub_rn(x, y) ((float)(x) - (float)(y))
#define __fmul_rn(x, y) ((float)(x) * (float)(y))
#define __fdiv_rn(x, y) ((float)(x) / (float)(y))
#define __fmaf_rn(x, y, z) fmaf(x, y, z)
#define __fsqrt_rn(x) sqrtf(x)
#define __frcp_rn(x) (1.0f / (float)(x))
#define __frsqrt_rn(x) rsqrtf(x)
#define __dadd_rn(x, y) ((double)(x) + (double)(y))
#define __dsub_rn(x, y) ((double)(x) - (double)(y))
#define __dmul_rn(x, y) ((double)(x) * (double)(y))
#define __ddiv_rn(x, y) ((double)(x) / (double)(y))
#define __fma_rn(x, y, z) fma(x, y, z)

/* Vector types, with CUDA's alignment. */
#define AF_VECTORS(T, NAME, A2, A4)                                                          \
  struct NAME##1 { T x; };                                                                   \
  struct alignas(A2) NAME##2 { T x, y; };                                                    \
  struct NAME##3 { T x, y, z; };                                                             \
  struct alignas(A4) NAME##4 { T x, y, z, w; };                                              \
  inline NAME##2 make_##NAME##2(T x, T y) { return {x, y}; }                                 \
  inline NAME##3 make_##NAME##3(T x, T y, T z) { return {x, y, z}; }                         \
  inline NAME##4 make_##NAME##4(T x, T y, T z, T w) { return {x, y, z, w}; }
AF_VECTORS(signed char, char, 2, 4)
AF_VECTORS(unsigned char, uchar, 2, 4)
AF_VECTORS(short, short, 4, 8)
AF_VECTORS(unsigned short, ushort, 4, 8)
AF_VECTORS(int, int, 8, 16)
AF_VECTORS(unsigned, uint, 8, 16)
AF_VECTORS(long long, longlong, 16, 16)
AF_VECTORS(unsigned long long, ulonglong, 16, 16)
AF_VECTORS(float, float, 8, 16)
AF_VECTORS(double, double, 16, 16)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

/* What the runtime calls; the linker makes the edges of a section, if there is one. */
#define AF_ENTRY(NAME, COUNT)                                                                \
  extern "C" {                                                                               \
  extern char __start_af_shared_##NAME[] __attribute__((weak, visibility("hidden")));        \
  extern char __stop_af_shared_##NAME[] __attribute__((weak, visibility("hidden")));         \
  extern const af::Entry af_kernel_##NAME;                                                   \
  const af::Entry af_kernel_##NAME = {#NAME, call_##NAME, COUNT, parameters_##NAME,          \
                                      __start_af_shared_##NAME, __stop_af_shared_##NAME};    \
  }

/* From here on, words of the text. Its fixed-width types are its own typedefs. */
#define int8_t af_int8_t
#define uint8_t af_uint8_t
#define int16_t af_int16_t
#define uint16_t af_uint16_t
#define int32_t af_int32_t
#define uint32_t af_uint32_t
#define int64_t af_int64_t
#define uint64_t af_uint64_t
#define threadIdx (af::here->thread)
#define blockIdx (af::here->block)
#define blockDim (af::block_dim)
#define gridDim (af::grid_dim)
#define warpSize 32
#define __host__
#define __device__
#define __global__
#define __constant__ static
#define __managed__ static
#define __shared__ static __attribute__((section(AF_SECTION)))
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(x)
#define __builtin_assume_aligned(p, n) (p)
#define __syncthreads() ((void)af::barrier({__FILE__, __LINE__}, 0))
#define __syncthreads_count(p) (af::barrier({__FILE__, __LINE__}, (p) != 0))
#define __syncthreads_or(p) ((int)(af::barrier({__FILE__, __LINE__}, (p) != 0) > 0))
#define __syncthreads_and(p) ((int)(af::barrier({__FILE__, __LINE__}, (p) == 0) == 0))
#define reinterpret_cast af::recast
