/* What the lanes of a warp do together on tensor cores, and the copies that feed them.

   A copy ahead arrives when the thread that asked for it waits for its group; until then there is
   poison in its place, and who accesses that (through matrices or checked pointers) is told so. The
   banks of shared memory serve 8 rows of 16 bytes of a matrix, or 32 words, in a turn, unless
   different ones are in the same banks. */
namespace af {

struct Rows { uint32_t *words; const char *at; };
struct Factors { float *sums; const uint32_t *left; uint32_t right[2]; };

/* Copies to static shared memory leave no trace: its plain accesses do not either. */
static void traced(const char *at, unsigned bytes, Access kind)
{
  const char *start = run.dynamic.data();
  in_shared(at, bytes, bytes, kind == READ ? "what a warp loads" : "what is copied to");
  if (at >= start && at < start + run.dynamic.size()) shared_access(at - start, bytes, bytes, 4, kind);
  else not_arriving(at, bytes);
}

void load_matrices(uint32_t *words, const void *at, bool turned)
{
  traced((const char *)at, 16, READ);
  Rows own = {words, (const char *)at};
  collective(turned ? MATRICES_TURNED : MATRICES, ~0u, (uint64_t)&own, 0, 32);
}

uint32_t load_word(const void *at)
{
  uint32_t word;
  traced((const char *)at, 4, READ);
  Rows own = {&word, (const char *)at};
  collective(WORDS, ~0u, (uint64_t)&own, 0, 32);
  return word;
}

void multiply(Collective kind, float *sums, const uint32_t *left, uint32_t b0, uint32_t b1)
{
  Factors own = {sums, left, {b0, b1}};
  collective(kind, ~0u, (uint64_t)&own, 0, 32);
}

struct Bytes { int32_t *sums; const uint32_t *left; uint32_t right[2]; bool with_sign[2]; };

void multiply_bytes(bool left_signed, bool right_signed, int32_t *sums, const uint32_t *left,
                    uint32_t b0, uint32_t b1)
{
  Bytes own = {sums, left, {b0, b1}, {left_signed, right_signed}};
  collective(MULTIPLY_BYTES, ~0u, (uint64_t)&own, 0, 32);
}

uint32_t tf32_of(float x)
{
  const uint32_t bits = bits_f32(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits & 0xffffe000u;
  return (bits + 0x1000u) & 0xffffe000u;
}

/* Turns that the banks take for pieces of `bytes` at once: as many as there are different pieces at
   the same place among the banks. */
static void count_turns(const Rows *const *lanes, int count, uint32_t bytes)
{
  uint32_t turns = 0;
  for (uint32_t place = 0; place < 128; place += bytes) {
    std::unordered_set<const char *> found;
    for (int k = 0; k < count; k++)
      if ((uintptr_t)lanes[k]->at % 128 == place) found.insert(lanes[k]->at);
    turns = std::max(turns, (uint32_t)found.size());
  }
  run.shared_turns += turns, run.least_turns++;
}

static void matrices(const Rows *const *lanes, bool turned)
{
  uint16_t found[8][8];
  for (int k = 0; k < 4; k++) {
    count_turns(lanes + 8 * k, 8, 16);
    for (int row = 0; row < 8; row++) memcpy(found[row], lanes[8 * k + row]->at, 16);
    for (int lane = 0; lane < 32; lane++) {
      const int g = lane / 4, t = lane % 4;
      const uint32_t low = turned ? found[2 * t][g] : found[g][2 * t];
      const uint32_t high = turned ? found[2 * t + 1][g] : found[g][2 * t + 1];
      lanes[lane]->words[k] = high << 16 | low;
    }
  }
}

/* The terms of a word: one of 32 bits, of which the last 13 are not looked at, or two. */
static void terms_of(Collective kind, uint32_t word, double *terms)
{
  if (kind == MULTIPLY_TF32) {
    terms[0] = f32_bits(word & 0xffffe000u), terms[1] = 0;
    return;
  }
  for (int half = 0; half < 2; half++) {
    const uint16_t bits = (uint16_t)(word >> 16 * half);
    terms[half] = kind == MULTIPLY_F16 ? f32_of_f16(bits) : f32_bits((uint32_t)bits << 16);
  }
}

/* Sums are cut off, not rounded (Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA
   tensor cores", PeerJ Computer Science 7, 2021). */
static float cut_off(double x)
{
  const float y = (float)x;
  return isfinite(y) && fabs((double)y) > fabs(x) ? nextafterf(y, 0.0f) : y;
}

static void product(Collective kind, const Factors *const *lanes)
{
  double left[16][16], right[16][8];
  for (int lane = 0; lane < 32; lane++) {
    const int g = lane / 4, t = lane % 4;
    for (int k = 0; k < 4; k++)
      terms_of(kind, lanes[lane]->left[k], &left[g + k % 2 * 8][2 * (t + k / 2 * 4)]);
    for (int k = 0; k < 2; k++) {
      double both[2];
      terms_of(kind, lanes[lane]->right[k], both);
      for (int half = 0; half < 2; half++) right[2 * (t + 4 * k) + half][g] = both[half];
    }
  }
  for (int lane = 0; lane < 32; lane++)
    for (int k = 0; k < 4; k++) {
      const int row = lane / 4 + k / 2 * 8, column = lane % 4 * 2 + k % 2;
      double sum = lanes[lane]->sums[k];
      for (int term = 0; term < 16; term++) sum += left[row][term] * right[term][column];
      lanes[lane]->sums[k] = cut_off(sum);
    }
}

/* The four terms of a word, the first one in its lowest byte. */
static void bytes_of(uint32_t word, bool with_sign, int32_t *terms)
{
  for (int k = 0; k < 4; k++) {
    const uint8_t bits = (uint8_t)(word >> 8 * k);
    terms[k] = with_sign ? (int8_t)bits : bits;
  }
}

/* m16n8k32 of bytes (PTX ISA): words lie as those of 16 bits do, sums wrap around. */
static void product_of_bytes(const Bytes *const *lanes)
{
  int32_t left[16][32], right[8][32];
  for (int lane = 0; lane < 32; lane++) {
    const Bytes &own = *lanes[lane];
    const int g = lane / 4, t = lane % 4;
    for (int k = 0; k < 4; k++)
      bytes_of(own.left[k], own.with_sign[0], &left[g + k % 2 * 8][4 * (t + k / 2 * 4)]);
    for (int k = 0; k < 2; k++) bytes_of(own.right[k], own.with_sign[1], &right[g][4 * (t + 4 * k)]);
  }
  for (int lane = 0; lane < 32; lane++)
    for (int k = 0; k < 4; k++) {
      const int row = lane / 4 + k / 2 * 8, column = lane % 4 * 2 + k % 2;
      uint32_t sum = (uint32_t)lanes[lane]->sums[k];
      for (int term = 0; term < 32; term++) sum += (uint32_t)(left[row][term] * right[column][term]);
      lanes[lane]->sums[k] = (int32_t)sum;
    }
}

static void together(Collective kind, Fiber *warp)
{
  if (kind == MULTIPLY_BYTES) {
    const Bytes *lanes[32];
    for (int k = 0; k < 32; k++) lanes[k] = (const Bytes *)warp[k].value;
    return product_of_bytes(lanes);
  }
  if (kind >= MULTIPLY_BF16) {
    const Factors *lanes[32];
    for (int k = 0; k < 32; k++) lanes[k] = (const Factors *)warp[k].value;
    return product(kind, lanes);
  }
  const Rows *lanes[32];
  for (int k = 0; k < 32; k++) lanes[k] = (const Rows *)warp[k].value;
  if (kind != WORDS) return matrices(lanes, kind == MATRICES_TURNED);
  count_turns(lanes, 32, 4);
  for (int k = 0; k < 32; k++) memcpy(lanes[k]->words, lanes[k]->at, 4);
}

void start_copy_ahead(void *to, const Buffer *b, const void *from, uint32_t bytes)
{
  Block &block = *run.self->block;
  if (bytes > 16) fail("%u of 16 bytes are copied", bytes);
  traced((const char *)to, 16, WRITE);
  if ((uintptr_t)from % 16) fail("16 bytes are copied from an address that is no multiple of 16");
  if (bytes) access(b, from, bytes, 1, READ);
  memset(to, poison(), 16);
  block.arriving.insert((const char *)to);
  run.self->asked.push_back({(char *)to, (const char *)from, bytes});
}

void end_copies()
{
  run.self->groups.push_back(std::move(run.self->asked));
  run.self->asked.clear();
}

void await_copies(uint32_t later)
{
  Fiber &self = *run.self;
  for (; self.groups.size() > later; self.groups.pop_front())
    for (const Copying &c : self.groups.front()) {
      self.block->arriving.erase(c.to);
      traced(c.to, 16, WRITE);
      memset(c.to, 0, 16);
      memcpy(c.to, c.from, c.bytes);
    }
}

}  // namespace af
