
/* Whole numbers, alike in C and CUDA: what the standard leaves undefined has a result. */
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
AF_SIGNED(int16_t, i16, uint16_t)
AF_SIGNED(int8_t, i8, uint8_t)
AF_UNSIGNED(uint64_t, u64, uint64_t)
AF_UNSIGNED(uint32_t, u32, uint32_t)
AF_UNSIGNED(uint16_t, u16, uint16_t)
AF_UNSIGNED(uint8_t, u8, uint8_t)
AF_INLINE bool af_max_bool(bool x, bool y) { return x | y; }
AF_INLINE bool af_min_bool(bool x, bool y) { return x & y; }
