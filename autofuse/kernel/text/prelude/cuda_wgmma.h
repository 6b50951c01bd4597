
/* Products of a warpgroup, four neighbouring warps (PTX ISA: wgmma, setmaxnreg; sm_90a alone). Both
   factors lie in shared memory, lines of 128 bytes, whose pieces of 16 are exchanged by the number of
   their line modulo 8: a block of 8 lines begins at a multiple of 1024. A descriptor says where: the
   address, and how far on the next block is. Blocks follow along rows (or columns) where lines are
   those, and along terms where lines are terms (turned): 64 rows lie side by side then, and `aside` is
   how far on the next 64 are. Warp w of a group has the sums of rows 16 w to 16 w + 15, laid out as
   those of a warp are. The emulator has its own (warpgroup.h). */
#define AF_BLOCK_BYTES 1024
#ifdef AF_EMULATED
#define af_shared_place(at) af::shared_place(at)
#define af_multiply_group(T, N, LEFT, RIGHT, sums, a, b) \
  af::multiply_group(af::MULTIPLY_##T, N, af::HOW_##LEFT, af::HOW_##RIGHT, sums, a, b)
#define af_multiply_group_on(T, N, LEFT, RIGHT, sums, a, b, on) \
  af::multiply_group(af::MULTIPLY_##T, N, LEFT, RIGHT, sums, a, b, on)
#define af_multiply_words(T, N, RIGHT, sums, words, b) \
  af::multiply_words(af::MULTIPLY_##T, N, RIGHT, sums, words, b)
#define af_group_fence() af::group_fence()
#define af_group_commit() af::group_commit()
#define af_group_await(later) af::group_await(later)
#define af_show_stores() af::show_stores()
#define af_arrive(ready) af::ready_arrive(ready)
#define af_meet(threads) ((void)af::barrier({"a meeting of all roles", 0}, 0))
#define af_meet_group(number) af::group_barrier(number, 128)
#define af_take_registers(count) af::change_registers(count, true)
#define af_give_registers(count) af::change_registers(count, false)
#define af_keep_sums(sums)
#else
AF_INLINE uint32_t af_shared_place(const void *at) { return af_shared_address(at); }
#define AF_C8(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), \
                 "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define AF_R8(i) "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), \
                 "+r"(c[i + 5]), "+r"(c[i + 6]), "+r"(c[i + 7])
#define AF_R16(i) AF_R8(i), AF_R8(i + 8)
#define AF_R32(i) AF_R16(i), AF_R16(i + 16)
#define AF_R64(i) AF_R32(i), AF_R32(i + 32)
#define AF_C16(i) AF_C8(i), AF_C8(i + 8)
#define AF_C32(i) AF_C16(i), AF_C16(i + 16)
#define AF_C64(i) AF_C32(i), AF_C32(i + 32)
#define AF_P16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define AF_P32 AF_P16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define AF_P48 AF_P32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define AF_P64 AF_P48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define AF_P80 AF_P64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define AF_P96 AF_P80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define AF_P112 AF_P96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define AF_P128 AF_P112 ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
/* Sums of 64 rows and N columns; LEFT and RIGHT say which factor is turned. `_on`: sums begin as zero
   where `on` is; `words`: the left factor is in registers, laid out as that of a warp is. */
#define AF_MULTIPLY_GROUP(T, N, PLACES, SUMS, A, B, LEFT, RIGHT, E, F)                       \
  template <int turn_left, int turn_right>                                                   \
  AF_INLINE void af_multiply_##T##_##N(float (&c)[N / 2], uint64_t a, uint64_t b)            \
  {                                                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" PLACES     \
                 "}, " A ", " B ", 1, 1, 1, " LEFT ", " RIGHT ";"                            \
                 : SUMS : "l"(a), "l"(b), "n"(turn_left), "n"(turn_right));                  \
  }                                                                                          \
  template <int turn_left, int turn_right>                                                   \
  AF_INLINE void af_multiply_on_##T##_##N(float (&c)[N / 2], uint64_t a, uint64_t b, int on) \
  {                                                                                          \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " E ", 0; "                                 \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" PLACES     \
                 "}, " A ", " B ", p, 1, 1, " LEFT ", " RIGHT "; }"                          \
                 : SUMS : "l"(a), "l"(b), "n"(turn_left), "n"(turn_right), "r"(on));         \
  }                                                                                          \
  template <int turn_right>                                                                  \
  AF_INLINE void af_multiply_words_##T##_##N(float (&c)[N / 2], const uint32_t (&a)[4], uint64_t b) \
  {                                                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" PLACES     \
                 "}, {" A ", " B ", " LEFT ", " RIGHT "}, " E ", 1, 1, 1, " F ";"            \
                 : SUMS : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(turn_right)); \
  }
#define AF_MULTIPLY_GROUPS(T)                                                                \
  AF_MULTIPLY_GROUP(T, 32, AF_P16, AF_C16(0), "%16", "%17", "%18", "%19", "%20", "%21")                    \
  AF_MULTIPLY_GROUP(T, 64, AF_P32, AF_C32(0), "%32", "%33", "%34", "%35", "%36", "%37")                    \
  AF_MULTIPLY_GROUP(T, 96, AF_P48, AF_C32(0) COMMA AF_C16(32), "%48", "%49", "%50", "%51", "%52", "%53")   \
  AF_MULTIPLY_GROUP(T, 128, AF_P64, AF_C64(0), "%64", "%65", "%66", "%67", "%68", "%69")                   \
  AF_MULTIPLY_GROUP(T, 192, AF_P96, AF_C64(0) COMMA AF_C32(64), "%96", "%97", "%98", "%99", "%100", "%101")  \
  AF_MULTIPLY_GROUP(T, 256, AF_P128, AF_C64(0) COMMA AF_C64(64), "%128", "%129", "%130", "%131", "%132", "%133")
#define COMMA ,
AF_MULTIPLY_GROUPS(bf16)
AF_MULTIPLY_GROUPS(f16)
/* Of bytes, which are never turned: LEFT and RIGHT say whether they have a sign. */
#define AF_i8 1
#define AF_u8 0
#define AF_MULTIPLY_BYTES_GROUP(N, PLACES, SUMS, A, B)                                       \
  template <int left, int right>                                                             \
  AF_INLINE void af_multiply_bytes_##N(int32_t (&c)[N / 2], uint64_t a, uint64_t b)          \
  {                                                                                          \
    if (left && right)                                                                       \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.s8 {" PLACES           \
                   "}, " A ", " B ", 1;" : SUMS : "l"(a), "l"(b));                           \
    else if (left)                                                                           \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.s8.u8 {" PLACES           \
                   "}, " A ", " B ", 1;" : SUMS : "l"(a), "l"(b));                           \
    else if (right)                                                                          \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.u8.s8 {" PLACES           \
                   "}, " A ", " B ", 1;" : SUMS : "l"(a), "l"(b));                           \
    else                                                                                     \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.s32.u8.u8 {" PLACES           \
                   "}, " A ", " B ", 1;" : SUMS : "l"(a), "l"(b));                           \
  }
AF_MULTIPLY_BYTES_GROUP(32, AF_P16, AF_R16(0), "%16", "%17")
AF_MULTIPLY_BYTES_GROUP(64, AF_P32, AF_R32(0), "%32", "%33")
AF_MULTIPLY_BYTES_GROUP(96, AF_P48, AF_R32(0) COMMA AF_R16(32), "%48", "%49")
AF_MULTIPLY_BYTES_GROUP(128, AF_P64, AF_R64(0), "%64", "%65")
AF_MULTIPLY_BYTES_GROUP(192, AF_P96, AF_R64(0) COMMA AF_R32(64), "%96", "%97")
AF_MULTIPLY_BYTES_GROUP(256, AF_P128, AF_R64(0) COMMA AF_R64(64), "%128", "%129")
#undef COMMA
#define AF_0 0
#define AF_1 1
#define af_multiply_group(T, N, LEFT, RIGHT, sums, a, b) af_multiply_##T##_##N<AF_##LEFT, AF_##RIGHT>(sums, a, b)
#define af_multiply_group_on(T, N, LEFT, RIGHT, sums, a, b, on) af_multiply_on_##T##_##N<LEFT, RIGHT>(sums, a, b, on)
#define af_multiply_words(T, N, RIGHT, sums, words, b) af_multiply_words_##T##_##N<RIGHT>(sums, words, b)
/* Before the first product of a group and after registers of its sums were touched. */
AF_INLINE void af_group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
/* What was asked for since the last one is a group; all but so many groups are waited for. */
AF_INLINE void af_group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define af_group_await(later) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(later) : "memory")
/* What this thread has stored is seen by products (the asynchronous proxy) that come after. */
AF_INLINE void af_show_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
AF_INLINE void af_arrive(uint64_t *ready)
{ asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(af_shared_address(ready)) : "memory"); }
/* All threads of the block, so many, from different places in the text: not by barrier 0, at which
   compute-sanitizer wants all at one place. */
#define af_meet(threads) asm volatile("bar.sync 15, %0;" ::"n"(threads) : "memory")
/* The threads of a warpgroup, at a barrier of their own. */
AF_INLINE void af_meet_group(int number) { asm volatile("bar.sync %0, 128;" ::"r"(number) : "memory"); }
/* Registers of each thread of this warpgroup from here on: more, once others have given theirs. */
#define af_take_registers(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))
#define af_give_registers(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
/* Nothing reads sums before the wait that comes before this. */
template <int N> AF_INLINE void af_keep_sums(float (&c)[N])
{
#pragma unroll
  for (int k = 0; k < N; k++) asm volatile("" : "+f"(c[k])::"memory");
}
template <int N> AF_INLINE void af_keep_sums(uint32_t (&c)[N])
{
#pragma unroll
  for (int k = 0; k < N; k++) asm volatile("" : "+r"(c[k])::"memory");
}
template <int N> AF_INLINE void af_keep_sums(int32_t (&c)[N])
{
#pragma unroll
  for (int k = 0; k < N; k++) asm volatile("" : "+r"(c[k])::"memory");
}
#endif
/* Bytes from `at` to the next block. */
#define af_to_block(at) ((0u - af_shared_place(at)) & (AF_BLOCK_BYTES - 1u))
AF_INLINE uint64_t af_descriptor(uint32_t place, uint32_t aside, uint32_t next)
{
  return (uint64_t)1 << 62 | (uint64_t)(next >> 4) << 32 | (uint64_t)(aside >> 4) << 16 | (place & 0x3ffffu) >> 4;
}
