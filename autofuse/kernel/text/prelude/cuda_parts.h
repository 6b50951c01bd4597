
AF_INLINE uint32_t af_mulhi_u32(uint32_t x, uint32_t y) { return __umulhi(x, y); }

#define AF_BITS(A, DA, B, DB)                                                                \
  AF_INLINE B af_bits_##DA##_##DB(A x) { union { A a; B b; } u; u.a = x; return u.b; }
#define AF_BITS2(A, DA, B, DB) AF_BITS(A, DA, B, DB) AF_BITS(B, DB, A, DA)
AF_BITS2(float, f32, uint32_t, u32)
AF_BITS2(float, f32, int32_t, i32)
AF_BITS2(int32_t, i32, uint32_t, u32)
AF_BITS2(double, f64, uint64_t, u64)
AF_BITS2(double, f64, int64_t, i64)
AF_BITS2(int64_t, i64, uint64_t, u64)
AF_BITS2(int16_t, i16, uint16_t, u16)
AF_BITS2(int8_t, i8, uint8_t, u8)

/* Half types as their bits: PTX converts them, so that no header is needed. */
typedef unsigned short af_f16;
typedef unsigned short af_bf16;
AF_INLINE float af_load_bf16(af_bf16 x) { return __uint_as_float((uint32_t)x << 16); }
#ifdef AF_EMULATED
AF_INLINE float af_load_f16(af_f16 x) { return af::f32_of_f16(x); }
AF_INLINE af_f16 af_store_f16(float x) { return af::f16_of_f32(x); }
AF_INLINE af_bf16 af_store_bf16(float x) { return af::bf16_of_f32(x); }
#else
AF_INLINE float af_load_f16(af_f16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
AF_INLINE af_f16 af_store_f16(float x) { af_f16 y; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
AF_INLINE af_bf16 af_store_bf16(float x)
{ af_bf16 y; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x)); return y; }
#endif

/* What a kernel begins with that may be launched before the ones it comes after are over: their
   results are there afterwards, and the kernels that come after it may be launched in turn. */
AF_INLINE void af_wait_for_earlier()
{
#ifdef AF_EMULATED
  af::wait_for_earlier();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : : : "memory");
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
#endif
}

/* Several neighbouring elements in one access: `i` is a multiple of their number. */
#define AF_VECTOR(T, D, N, BYTES) struct alignas(BYTES) af_##D##x##N { T x[N]; };
AF_VECTOR(double, f64, 2, 16)
AF_VECTOR(int64_t, i64, 2, 16)
AF_VECTOR(uint64_t, u64, 2, 16)
#define AF_WORDS(T, D) AF_VECTOR(T, D, 2, 8) AF_VECTOR(T, D, 4, 16)
AF_WORDS(float, f32)
AF_WORDS(int32_t, i32)
AF_WORDS(uint32_t, u32)
#define AF_HALVES(T, D) AF_VECTOR(T, D, 2, 4) AF_VECTOR(T, D, 4, 8) AF_VECTOR(T, D, 8, 16)
AF_HALVES(af_f16, f16)
AF_HALVES(af_bf16, bf16)
AF_HALVES(int16_t, i16)
AF_HALVES(uint16_t, u16)
#define AF_BYTES(T, D) AF_VECTOR(T, D, 2, 2) AF_VECTOR(T, D, 4, 4) AF_VECTOR(T, D, 8, 8)
AF_BYTES(int8_t, i8)
AF_VECTOR(int8_t, i8, 16, 16)
AF_BYTES(uint8_t, u8)
AF_BYTES(bool, bool)
#define af_load_vector(V, buffer, i) (*reinterpret_cast<const V *>((buffer) + (i)))
#define af_store_vector(V, buffer, i, ...) (*reinterpret_cast<V *>((buffer) + (i)) = V{{__VA_ARGS__}})
/* Of inputs, telling the second-level cache what is read once and what again. What others may still
   write when the kernel starts (_later) is read in the order of the text, not through the read-only
   path. */
#ifdef AF_EMULATED
#define af_load_vector_once af_load_vector
#define af_load_vector_again af_load_vector
#define af_load_vector_once_later af_load_vector
#define af_load_vector_again_later af_load_vector
#else
AF_INLINE uint64_t af_evict_first()
{ uint64_t p; asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(p)); return p; }
AF_INLINE uint64_t af_evict_last()
{ uint64_t p; asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(p)); return p; }
#define AF_HINTED(NAME, ORDERED, LOAD, ...)                                                   \
  template <class V> AF_INLINE V NAME(const void *p, uint64_t policy)                         \
  {                                                                                           \
    union { V v; uint32_t w[4]; uint16_t h; } u;                                              \
    if (sizeof(V) == 16)                                                                      \
      asm ORDERED(LOAD ".L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"                   \
          : "=r"(u.w[0]), "=r"(u.w[1]), "=r"(u.w[2]), "=r"(u.w[3])                            \
          : "l"(p), "l"(policy) __VA_ARGS__);                                                 \
    else if (sizeof(V) == 8)                                                                  \
      asm ORDERED(LOAD ".L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"                           \
          : "=r"(u.w[0]), "=r"(u.w[1]) : "l"(p), "l"(policy) __VA_ARGS__);                    \
    else if (sizeof(V) == 4)                                                                  \
      asm ORDERED(LOAD ".L2::cache_hint.u32 %0, [%1], %2;"                                    \
          : "=r"(u.w[0]) : "l"(p), "l"(policy) __VA_ARGS__);                                  \
    else                                                                                      \
      asm ORDERED(LOAD ".L2::cache_hint.u16 %0, [%1], %2;"                                    \
          : "=h"(u.h) : "l"(p), "l"(policy) __VA_ARGS__);                                     \
    return u.v;                                                                               \
  }
AF_HINTED(af_load_hinted, , "ld.global.nc")
AF_HINTED(af_load_hinted_later, volatile, "ld.global", : "memory")
#define af_load_vector_once(V, buffer, i) af_load_hinted<V>((buffer) + (i), af_evict_first())
#define af_load_vector_again(V, buffer, i) af_load_hinted<V>((buffer) + (i), af_evict_last())
#define af_load_vector_once_later(V, buffer, i) af_load_hinted_later<V>((buffer) + (i), af_evict_first())
#define af_load_vector_again_later(V, buffer, i) af_load_hinted_later<V>((buffer) + (i), af_evict_last())
#endif

/* Folds over the threads of a warp, of a block (a multiple of 32) and over the rows of threads of a
   block of 32 columns: every thread gets the total. A block meets once in each: folds one after
   another take turns (0, 1, 0, ...), and who writes for a turn has met all who read for the last. */
AF_INLINE int af_shuffle(int x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AF_INLINE float af_shuffle(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AF_INLINE double af_shuffle(double x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AF_INLINE uint32_t af_shuffle(uint32_t x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AF_INLINE int64_t af_shuffle(int64_t x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AF_INLINE uint64_t af_shuffle(uint64_t x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
AF_INLINE bool af_shuffle(bool x, int mask) { return __shfl_xor_sync(0xffffffffu, (int)x, mask) != 0; }
AF_INLINE int8_t af_shuffle(int8_t x, int mask) { return (int8_t)__shfl_xor_sync(0xffffffffu, (int)x, mask); }
AF_INLINE uint8_t af_shuffle(uint8_t x, int mask) { return (uint8_t)__shfl_xor_sync(0xffffffffu, (int)x, mask); }
AF_INLINE int16_t af_shuffle(int16_t x, int mask) { return (int16_t)__shfl_xor_sync(0xffffffffu, (int)x, mask); }
AF_INLINE uint16_t af_shuffle(uint16_t x, int mask) { return (uint16_t)__shfl_xor_sync(0xffffffffu, (int)x, mask); }

#define AF_FOLD(OP, T, D, IDENTITY, JOIN)                                                    \
  AF_INLINE T af_identity_##OP##_##D() { return IDENTITY; }                                  \
  AF_INLINE T af_join_##OP##_##D(T x, T y) { return JOIN; }                                  \
  AF_INLINE T af_warp_##OP##_##D(T x, int lanes = 32)                                        \
  {                                                                                          \
    for (int m = lanes / 2; m > 0; m >>= 1) x = af_join_##OP##_##D(x, af_shuffle(x, m));     \
    return x;                                                                                \
  }                                                                                          \
  AF_INLINE T af_block_##OP##_##D(T x, int threads, int turn)                                \
  {                                                                                          \
    __shared__ T part[2][32];                                                                \
    const int lane = threadIdx.x & 31, warps = threads / 32;                                 \
    x = af_warp_##OP##_##D(x);                                                               \
    if (lane == 0) part[turn][threadIdx.x >> 5] = x;                                         \
    __syncthreads();                                                                         \
    if ((warps & (warps - 1)) == 0)                                                          \
      return af_warp_##OP##_##D(part[turn][lane & (warps - 1)], warps);                      \
    x = lane < warps ? part[turn][lane] : af_identity_##OP##_##D();                          \
    return af_warp_##OP##_##D(x);                                                            \
  }                                                                                          \
  template <int ROWS> AF_INLINE T af_column_##OP##_##D(T x, int turn)                        \
  {                                                                                          \
    __shared__ T part[2][32 * ROWS];                                                         \
    part[turn][threadIdx.x] = x;                                                             \
    __syncthreads();                                                                         \
    x = part[turn][threadIdx.x & 31];                                                        \
    for (int row = 1; row < ROWS; row++)                                                     \
      x = af_join_##OP##_##D(x, part[turn][row * 32 + (threadIdx.x & 31)]);                  \
    return x;                                                                                \
  }                                                                                          \
  template <int BLOCKS> AF_INLINE T af_cluster_##OP##_##D(T x, int turn)                     \
  {                                                                                          \
    __shared__ T part[2][BLOCKS];                                                            \
    if (threadIdx.x < BLOCKS) af_store_remote(&part[turn][af_cluster_rank()], threadIdx.x, x); \
    af_cluster_arrive();                                                                     \
    af_cluster_wait();                                                                       \
    x = part[turn][0];                                                                       \
    for (int k = 1; k < BLOCKS; k++) x = af_join_##OP##_##D(x, part[turn][k]);               \
    return x;                                                                                \
  }
/* Over the blocks of a cluster: `x` is what a block has, in turns of their own, because here all
   blocks meet. Before, they have called af_cluster_begin and af_cluster_wait: nobody may write to a
   block that has not begun. */
#ifdef AF_EMULATED
#define af_cluster_rank() af::cluster_rank()
#define af_cluster_begin() af::cluster_arrive()
#define af_cluster_arrive() af::cluster_arrive()
#define af_cluster_wait() af::cluster_wait()
#define af_store_remote(at, rank, x) af::store_remote(at, rank, x)
#elif __CUDA_ARCH__ >= 900
AF_INLINE uint32_t af_cluster_rank() { uint32_t r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
AF_INLINE void af_cluster_begin() { asm volatile("barrier.cluster.arrive.relaxed.aligned;"); }
AF_INLINE void af_cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
AF_INLINE void af_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }
template <class T> AF_INLINE void af_store_remote(T *at, uint32_t rank, T x)
{
  union { T x; uint64_t b8; uint32_t b4; uint16_t b2; uint8_t b1; } u;
  uint32_t to;
  u.x = x;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(to) : "r"((uint32_t)__cvta_generic_to_shared(at)), "r"(rank));
  if (sizeof(T) == 8) asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(to), "l"(u.b8) : "memory");
  else if (sizeof(T) == 4) asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(u.b4) : "memory");
  else if (sizeof(T) == 2) asm volatile("st.shared::cluster.u16 [%0], %1;" ::"r"(to), "h"(u.b2) : "memory");
  else asm volatile("st.shared::cluster.u8 [%0], %1;" ::"r"(to), "r"((uint32_t)u.b1) : "memory");
}
#else
/* There are none before sm_90, and no kernel that asks for one. */
template <class T> AF_INLINE void af_store_remote(T *at, uint32_t rank, T x) { __trap(); }
AF_INLINE uint32_t af_cluster_rank() { return 0; }
AF_INLINE void af_cluster_begin() {}
AF_INLINE void af_cluster_arrive() {}
AF_INLINE void af_cluster_wait() {}
#endif

#define AF_FOLDS(T, D, LOW, HIGH)                                                            \
  AF_FOLD(add, T, D, (T)0, (T)(x + y))                                                       \
  AF_FOLD(mul, T, D, (T)1, (T)(x * y))                                                       \
  AF_FOLD(max, T, D, LOW, af_max_##D(x, y))                                                  \
  AF_FOLD(min, T, D, HIGH, af_min_##D(x, y))
AF_FOLDS(float, f32, -AF_INFF, AF_INFF)
AF_FOLDS(double, f64, -AF_INF, AF_INF)
AF_FOLDS(int64_t, i64, (-9223372036854775807LL - 1), 9223372036854775807LL)
AF_FOLDS(int32_t, i32, (-2147483647 - 1), 2147483647)
AF_FOLDS(int16_t, i16, (int16_t)-32768, (int16_t)32767)
AF_FOLDS(int8_t, i8, (int8_t)-128, (int8_t)127)
AF_FOLDS(uint64_t, u64, 0ULL, 18446744073709551615ULL)
AF_FOLDS(uint32_t, u32, 0u, 4294967295u)
AF_FOLDS(uint16_t, u16, (uint16_t)0, (uint16_t)65535)
AF_FOLDS(uint8_t, u8, (uint8_t)0, (uint8_t)255)
AF_FOLD(or, bool, bool, false, x | y)
AF_FOLD(and, bool, bool, true, x & y)

/* Blocks that share a row meet: what each wrote before, the last one to come reads after, ... */
AF_INLINE bool af_is_last(AF_WORK(uint32_t, tickets), int row, uint32_t parts)
{
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(tickets + row, 1u) == parts - 1;
    if (last) atomicExch(tickets + row, 0u);
  }
  __syncthreads();
  __threadfence();
  return last;
}
/* ... or all do. Arrivals add up to 2^31, so that the top bit flips when the last one is there. */
AF_INLINE void af_wait_for_all(AF_WORK(uint32_t, tickets), int row, uint32_t parts, bool first)
{
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t before = atomicAdd(tickets + row, first ? 0x80000001u - parts : 1u);
    AF_WAIT_WHILE(((atomicAdd(tickets + row, 0u) ^ before) & 0x80000000u) == 0, __nanosleep(40))
  }
  __syncthreads();
  __threadfence();
}

/* Rows that are copied while others are computed. A `ready` of a row passes from phase to phase:
   all of its copies have been asked for, and have arrived. From sm_90 on one thread asks for a whole
   row (cp.async.bulk); before, each for 16 bytes at a time (cp.async). AF_BULK says which. */
#ifndef AF_BULK
#ifdef AF_EMULATED
#define AF_BULK 1
#else
#define AF_BULK (__CUDA_ARCH__ >= 900)
#endif
#endif
#ifdef AF_EMULATED
#define af_ready_init(ready, count) af::ready_init(ready, count)
#define af_ready_passed(ready, phase) af::ready_passed(ready, phase)
#define af_expect_bytes(ready, bytes) af::expect_bytes(ready, bytes)
#define af_copy_bulk(to, from, bytes, ready) af::copy_async(to, from, bytes, ready)
#define af_copy_piece(to, from) af::copy_async(to, from, 16, nullptr)
#define af_arrive_after_copies(ready) af::arrive_after_copies(ready)
#else
AF_INLINE uint32_t af_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
AF_INLINE uint64_t af_global_address(const void *p) { return (uint64_t)__cvta_generic_to_global(p); }
AF_INLINE void af_ready_init(uint64_t *ready, uint32_t count)
{
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(af_shared_address(ready)), "r"(count) : "memory");
#if AF_BULK
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
#if AF_BULK
AF_INLINE bool af_ready_passed(uint64_t *ready, uint32_t phase)
{
  uint32_t passed;
  asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(passed) : "r"(af_shared_address(ready)), "r"(phase) : "memory");
  return passed != 0;
}
AF_INLINE void af_expect_bytes(uint64_t *ready, uint32_t bytes)
{
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;"
               ::"r"(af_shared_address(ready)), "r"(bytes) : "memory");
}
AF_INLINE void af_copy_bulk(void *to, const void *from, uint32_t bytes, uint64_t *ready)
{
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(af_shared_address(to)), "l"(af_global_address(from)), "r"(bytes),
               "r"(af_shared_address(ready)) : "memory");
}
#else
AF_INLINE bool af_ready_passed(uint64_t *ready, uint32_t phase)
{
  uint32_t passed;
  asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
               : "=r"(passed) : "r"(af_shared_address(ready)), "r"(phase) : "memory");
  return passed != 0;
}
AF_INLINE void af_copy_piece(void *to, const void *from)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
               ::"r"(af_shared_address(to)), "l"(af_global_address(from)) : "memory");
}
AF_INLINE void af_arrive_after_copies(uint64_t *ready)
{
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(af_shared_address(ready)) : "memory");
}
#endif
#endif
/* Called once for each `ready`, before a barrier; `rows` become ready at once. */
AF_INLINE void af_rows_init(uint64_t *ready, int rows, int threads)
{ af_ready_init(ready, AF_BULK ? rows : rows * threads); }
/* Called by all `threads` threads that share a row, `place` among them. `bytes` is a multiple of 16. */
template <class T>
AF_INLINE void af_fetch(void *to, AF_IN(T, from), int bytes, uint64_t *ready, int place, int threads)
{
#if AF_BULK
  if (place == 0) {
    af_expect_bytes(ready, bytes);
    af_copy_bulk(to, from, bytes, ready);
  }
#else
  for (int at = place * 16; at < bytes; at += threads * 16)
    af_copy_piece((char *)to + at, from + at / (int)sizeof(T));
  af_arrive_after_copies(ready);
#endif
}
AF_INLINE void af_await(uint64_t *ready, uint32_t phase)
{ AF_WAIT_WHILE(!af_ready_passed(ready, phase), ) }
