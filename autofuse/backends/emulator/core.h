/* What kernels in the emulator and its runtime share. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace af {

/* Who accessed an element last, and when: the runtime's. */
struct Shadow;

/* One argument of a launch. `unit` is the size of an element in bytes; buffers that are only read
   have no shadow. */
struct Buffer {
  char *data;
  uint64_t bytes;
  const char *name;
  uint32_t unit, writable;
  Shadow *shadow;
};

struct Parameter { const char *name; uint32_t unit, writable; };

/* A kernel as its unit declares it; `shared` to `shared_end` are its __shared__ variables. */
struct Entry {
  const char *name;
  void (*call)(Buffer *);
  int parameters;
  const Parameter *parameter;
  char *shared, *shared_end;
};

struct Site { const char *file; int line; };
struct Dim { unsigned x, y, z; };
struct Place { Dim thread, block; };

/* The running thread and the launch; a switch between threads is always a call, so that the
   compiler reads these again. */
extern Place *here;
extern Dim block_dim, grid_dim;

enum Access { READ, WRITE, ATOMIC };
enum Collective {
  SYNC, SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, MATCH,
  SUM, MIN_SIGNED, MAX_SIGNED, MIN_UNSIGNED, MAX_UNSIGNED, ALL_BITS, ANY_BITS, ODD_BITS,
  MATRICES, MATRICES_TURNED, WORDS, MULTIPLY_BF16, MULTIPLY_F16, MULTIPLY_TF32,
  MULTIPLY_BYTES
};

/* Ends the launch with a message that names kernel, block and thread. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* `at`, where `bytes` bytes may be accessed in this way now. */
char *access(const Buffer *buffer, const void *at, unsigned bytes, unsigned align, Access kind);
/* `bytes` bytes at `offset` of the dynamic shared memory of the block, elements of `unit` bytes
   each, where they may be accessed in this way now. */
char *shared_access(int64_t offset, unsigned bytes, unsigned align, unsigned unit, Access kind);
char *shared_start();
/* Waits for the whole block; how many threads passed a non-zero predicate. */
int barrier(Site site, int predicate);
/* Waits for the lanes in `mask`; the result of `kind` for this lane. */
uint64_t collective(Collective kind, uint32_t mask, uint64_t value, int operand, int width);
void fence();
/* No buffer may be accessed before it, and every thread must come here. */
void wait_for_earlier();
/* After an atomic: integers order memory, other threads get a turn. */
void atomic_done(const void *at, bool synchronises, bool changed);
/* Lets other threads run. */
void yield();

/* Blocks of a cluster (cluster.h): which one this is, their barrier, and an element of another's
   shared memory. */
uint32_t cluster_rank();
void cluster_arrive();
void cluster_wait();
void remote_write(void *at, uint32_t rank, const void *value, uint32_t bytes);

/* Copies to shared memory that arrive later (async.h), and what counts them: mbarriers. */
void ready_init(void *ready, uint32_t count);
void expect_bytes(void *ready, uint32_t bytes);
void arrive_after_copies(void *ready);
bool ready_passed(void *ready, uint32_t parity);
/* Counted by `ready`, or by what the thread names next with arrive_after_copies. */
void start_copy(void *to, const Buffer *buffer, const void *from, uint32_t bytes, void *ready);

/* What a tensor map of the emulator holds (boxes.h, maps.py), and a box that it says how to copy. */
constexpr uint64_t MAP_MAGIC = 0x70616d726f736e74;
struct alignas(64) TensorMap {
  uint64_t magic, address, strides[4];
  uint32_t sizes[5];
  uint16_t box[5], element, rank, swizzle;
  char rest[44];
};
static_assert(sizeof(TensorMap) == 128, "a tensor map has 128 bytes");
void start_box(void *to, const TensorMap *map, int rank, int32_t x, int32_t y, int32_t z,
               void *ready);
void expect_more(void *ready, uint32_t bytes);

/* Tensor cores and the copies that feed them (matrix.h), laid out as the prelude says. */
void load_matrices(uint32_t *words, const void *at, bool turned);
uint32_t load_word(const void *at);
void multiply(Collective kind, float *sums, const uint32_t *left, uint32_t b0, uint32_t b1);
void multiply_bytes(bool left_signed, bool right_signed, int32_t *sums, const uint32_t *left,
                    uint32_t b0, uint32_t b1);
uint32_t tf32_of(float x);
void start_copy_ahead(void *to, const Buffer *buffer, const void *from, uint32_t bytes);
void end_copies();
void await_copies(uint32_t later);

/* Products of a warpgroup (warpgroup.h): names as the text has them. */
constexpr Collective MULTIPLY_bf16 = MULTIPLY_BF16, MULTIPLY_f16 = MULTIPLY_F16,
                     MULTIPLY_bytes = MULTIPLY_BYTES;
/* Whether a factor is turned, or one of bytes has a sign. */
constexpr bool HOW_0 = false, HOW_1 = true, HOW_i8 = true, HOW_u8 = false;
uint32_t shared_place(const void *at);
void group_fence();
void multiply_group(Collective kind, int columns, bool left, bool right, void *sums, uint64_t a,
                    uint64_t b, bool on = true);
void multiply_words(Collective kind, int columns, bool right, void *sums, const uint32_t (&words)[4],
                    uint64_t b);
void group_commit();
void group_await(uint32_t later);
void group_barrier(uint32_t number, uint32_t count);
void show_stores();
void ready_arrive(void *ready);
void change_registers(int count, bool more);

inline float f32_bits(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
inline uint32_t bits_f32(float x) { uint32_t y; memcpy(&y, &x, 4); return y; }

inline float f32_of_f16(uint16_t h)
{
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, rest = h & 1023;
  if (exponent == 31) return f32_bits(sign | 0x7f800000u | rest << 13);
  const float magnitude = exponent ? ldexpf((float)(rest | 1024), (int)exponent - 25)
                                   : ldexpf((float)rest, -24);
  return sign ? -magnitude : magnitude;
}

/* To nearest, ties to even; a NaN becomes the one that the hardware makes. */
inline uint16_t f16_of_f32(float x)
{
  const uint32_t bits = bits_f32(x), magnitude = bits & 0x7fffffffu;
  const uint16_t sign = bits >> 16 & 0x8000;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00;
  if (magnitude < 0x38800000u) return sign | (uint16_t)rintf(ldexpf(fabsf(x), 24));
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return sign | (uint16_t)((rounded - 0x38000000u) >> 13);
}

inline uint16_t bf16_of_f32(float x)
{
  const uint32_t bits = bits_f32(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace af
