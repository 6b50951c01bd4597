
/* Tensor cores: what the lanes of a warp do together (PTX ISA: mma.sync, ldmatrix, cp.async). A word
   is two neighbouring terms of 16 bits, or one of 32. Lane l has g = l / 4 and t = l % 4. A product
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
#define AF_MULTIPLY(NAME, SHAPE, T)                                                          \
  AF_INLINE void NAME(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)       \
  {                                                                                          \
    asm volatile("mma.sync.aligned." SHAPE ".row.col.f32." T "." T ".f32 "                   \
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"           \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                            \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));            \
  }
AF_MULTIPLY(af_multiply_bf16, "m16n8k16", "bf16")
AF_MULTIPLY(af_multiply_f16, "m16n8k16", "f16")
AF_MULTIPLY(af_multiply_tf32, "m16n8k8", "tf32")
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
/* Factors that were computed are f32 in scratch, others are as they are stored. */
AF_INLINE af_bf16 af_as_bf16(float x) { return af_store_bf16(x); }
AF_INLINE af_bf16 af_as_bf16(af_bf16 x) { return x; }
AF_INLINE af_f16 af_as_f16(float x) { return af_store_f16(x); }
AF_INLINE af_f16 af_as_f16(af_f16 x) { return x; }
AF_INLINE float af_as_f32(float x) { return x; }
/* A factor as the sum of two of 11 bits. */
AF_INLINE void af_two_tf32(uint32_t &high, uint32_t &low)
{
  const float x = __uint_as_float(high);
  high = af_tf32(x);
  low = af_tf32(x - __uint_as_float(high));
}
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
