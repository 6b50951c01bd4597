
/* Tensor cores: what the lanes of a warp do together (PTX ISA: mma.sync, ldmatrix, cp.async). A word
   is four neighbouring terms of 8 bits, two of 16, or one of 32. Lane l has g = l / 4 and t = l % 4. A product
   adds 16 rows x 8 words times 8 words x 8 columns to sums. A lane holds of the left factor the words
   (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4), of the right one (t, g), (t + 4, g), and the sums
   (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). The emulator has its own (matrix.h). */
#ifdef AF_EMULATED
#define af_matrices(words, at) af::load_matrices(words, at, false)
#define af_matrices_turned(words, at) af::load_matrices(words, at, true)
#define af_shared_word(at) af::load_word(at)
#define af_multiply_bf16(sums, left, b0, b1) af::multiply(af::MULTIPLY_BF16, sums, left, b0, b1)
#define af_multiply_f16(sums, left, b0, b1) af::multiply(af::MULTIPLY_F16, sums, left, b0, b1)
#define af_multiply_tf32(sums, left, b0, b1) af::multiply(af::MULTIPLY_TF32, sums, left, b0, b1)
#define af_multiply_i8_i8(sums, left, b0, b1) af::multiply_bytes(true, true, sums, left, b0, b1)
#define af_multiply_i8_u8(sums, left, b0, b1) af::multiply_bytes(true, false, sums, left, b0, b1)
#define af_multiply_u8_i8(sums, left, b0, b1) af::multiply_bytes(false, true, sums, left, b0, b1)
#define af_multiply_u8_u8(sums, left, b0, b1) af::multiply_bytes(false, false, sums, left, b0, b1)
#define af_tf32(x) af::tf32_of(x)
#define af_copy_ahead(to, from, bytes) af::copy_ahead(to, from, bytes)
#define af_end_copies() af::end_copies()
#define af_await_copies(later) af::await_copies(later)
#else
/* Lanes 8k to 8k + 7 say where the rows of matrix k are, of 8 rows of 16 bytes: a lane gets of each
   the word (g, t). Turned, of 16 bits: the elements (2t, g) and (2t + 1, g). */
#define AF_MATRICES(NAME, TURNED)                                                            \
  AF_INLINE void NAME(uint32_t (&w)[4], const void *at)                                      \
  {                                                                                          \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" TURNED ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])                            \
                 : "r"(af_shared_address(at)) : "memory");                                   \
  }
AF_MATRICES(af_matrices, "")
AF_MATRICES(af_matrices_turned, ".trans")
AF_INLINE uint32_t af_shared_word(const void *at) { return *(const uint32_t *)at; }
#define AF_MULTIPLY(NAME, SHAPE, A, B, S, T, R)                                              \
  AF_INLINE void NAME(T (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)           \
  {                                                                                          \
    asm volatile("mma.sync.aligned." SHAPE ".row.col." S "." A "." B "." S " "               \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+" R(c[0]), "+" R(c[1]), "+" R(c[2]), "+" R(c[3])                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));            \
  }
#define AF_MULTIPLY_FLOATS(NAME, SHAPE, T) AF_MULTIPLY(NAME, SHAPE, T, T, "f32", float, "f")
#define AF_MULTIPLY_BYTES(NAME, A, B) AF_MULTIPLY(NAME, "m16n8k32", A, B, "s32", int32_t, "r")
AF_MULTIPLY_FLOATS(af_multiply_bf16, "m16n8k16", "bf16")
AF_MULTIPLY_FLOATS(af_multiply_f16, "m16n8k16", "f16")
AF_MULTIPLY_FLOATS(af_multiply_tf32, "m16n8k8", "tf32")
AF_MULTIPLY_BYTES(af_multiply_i8_i8, "s8", "s8")
AF_MULTIPLY_BYTES(af_multiply_i8_u8, "s8", "u8")
AF_MULTIPLY_BYTES(af_multiply_u8_i8, "u8", "s8")
AF_MULTIPLY_BYTES(af_multiply_u8_u8, "u8", "u8")
/* Rounded to 11 bits, to nearest, ties away from zero. */
AF_INLINE uint32_t af_tf32(float x) { uint32_t y; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x)); return y; }
/* 16 bytes to shared memory, of which `bytes` are read and the others are zero. All that a thread
   has asked for up to af_end_copies is a group; af_await_copies waits for all but so many groups. */
AF_INLINE void af_copy_ahead(void *to, const void *from, int bytes)
{
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               ::"r"(af_shared_address(to)), "l"(af_global_address(from)), "r"(bytes) : "memory");
}
AF_INLINE void af_end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#define af_await_copies(later) asm volatile("cp.async.wait_group %0;" ::"n"(later) : "memory")
#endif
/* Words of bytes of 16 columns (rows) that were loaded turned, by pairs of neighbours: terms 4t and
   4t + 1, then 4t + 2 and 4t + 3, of the first and of the second 16. They become four terms of
   an even one, and of the odd one next to it. */
AF_INLINE void af_turn_pairs_columns(uint32_t (&w)[4])
{
  const uint32_t odd[2] = {__byte_perm(w[0], w[1], 0x7531), __byte_perm(w[2], w[3], 0x7531)};
  w[0] = __byte_perm(w[0], w[1], 0x6420), w[1] = __byte_perm(w[2], w[3], 0x6420);
  w[2] = odd[0], w[3] = odd[1];
}
AF_INLINE void af_turn_pairs_rows(uint32_t (&w)[4])
{
  const uint32_t odd[2] = {__byte_perm(w[0], w[1], 0x7531), __byte_perm(w[2], w[3], 0x7531)};
  w[0] = __byte_perm(w[0], w[1], 0x6420), w[2] = __byte_perm(w[2], w[3], 0x6420);
  w[1] = odd[0], w[3] = odd[1];
}
/* Factors that were computed are f32 in scratch, others are as they are stored. */
AF_INLINE af_bf16 af_as_bf16(float x) { return af_store_bf16(x); }
AF_INLINE af_bf16 af_as_bf16(af_bf16 x) { return x; }
AF_INLINE af_f16 af_as_f16(float x) { return af_store_f16(x); }
AF_INLINE af_f16 af_as_f16(af_f16 x) { return x; }
AF_INLINE float af_as_f32(float x) { return x; }
AF_INLINE int8_t af_as_i8(int32_t x) { return (int8_t)x; }
/* A factor as the sum of two of 11 bits. */
AF_INLINE void af_two_tf32(uint32_t &high, uint32_t &low)
{
  const float x = __uint_as_float(high);
  high = af_tf32(x);
  low = af_tf32(x - __uint_as_float(high));
}
/* A power of two is one instruction (PTX ISA, ex2.approx.ftz: at most 2^-22 off, zero below 2^-126). */
#ifdef AF_EMULATED
AF_INLINE float af_exp2_f32(float x) { return exp2f(x); }
#else
AF_INLINE float af_exp2_f32(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif
/* Two factors of 16 bits as a word, the first one in its lower half. */
#ifdef AF_EMULATED
AF_INLINE uint32_t af_pair_bf16(float x, float y) { return (uint32_t)af_store_bf16(y) << 16 | af_store_bf16(x); }
AF_INLINE uint32_t af_pair_f16(float x, float y) { return (uint32_t)af_store_f16(y) << 16 | af_store_f16(x); }
#else
AF_INLINE uint32_t af_pair_bf16(float x, float y)
{ uint32_t w; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x)); return w; }
AF_INLINE uint32_t af_pair_f16(float x, float y)
{ uint32_t w; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(y), "f"(x)); return w; }
#endif
