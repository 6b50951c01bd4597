/* What the threads of a warpgroup do together on tensor cores, while they go on themselves.

   A product is done when all its threads wait for its group, as late as may be: until then there is
   poison in its sums, and it reads shared memory as that is then, so that who gives a place back
   too early, or reads sums too early, computes with something else. Shared memory is read by another
   proxy than stores go through: who stored there must have shown it first (fence.proxy.async). */
namespace af {

/* Where shared memory is seen to be. No region begins where a block of lines may: a text that wants
   that must see to it. */
constexpr uint32_t FIRST_PLACE = 112, BLOCK_BYTES = 1024, LINE_BYTES = 128;

uint32_t shared_place(const void *at)
{
  uint32_t first = FIRST_PLACE;
  for (const Region &r : run.regions) {
    if ((const char *)at >= r.start && (const char *)at <= r.start + r.bytes)
      return first + (uint32_t)((const char *)at - r.start);
    first += (uint32_t)(r.bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
  }
  fail("what a product reads is not in shared memory");
}

/* 16 bytes of a factor, which must have been written before, have arrived and been shown. */
static const char *piece_at(uint32_t place)
{
  uint32_t first = FIRST_PLACE;
  for (const Region &r : run.regions) {
    if (place >= first && place + 16 <= first + r.bytes) {
      const char *at = r.start + (place - first);
      not_arriving(at, 16);
      if (r.start == run.dynamic.data() && !run.stored.empty()) {
        const Stored s = run.stored[(place - first) / 16];
        if (s.thread && run.self->block->fibers[s.thread - 1].shown == s.shown)
          fail("a product reads what thread %u has stored and not shown (fence.proxy.async)",
               s.thread - 1);
        for (uint32_t e = place - first; e < place - first + 16; e++) {
          const Shadow t = trace(e);
          if (t.writer && !seen(t.writer, t.epoch, t.tick, t.steps))
            race("dynamic shared memory", e, "read by a product", t.writer, "written");
        }
      }
      return at;
    }
    first += (uint32_t)(r.bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
  }
  fail("a product reads beyond shared memory");
}

/* A factor as its descriptor says: bits 0 to 13 the place, 16 to 29 and 32 to 45 the two distances,
   all of 16 bytes, 49 to 51 an offset, 62 and 63 the layout, of which 1 is that of 128 bytes. A
   product takes 32 bytes of a row: 16 terms, of which some are turned (`how`), or 32 bytes, of which
   some have a sign. */
static int terms_of_a_step(Collective kind) { return kind == MULTIPLY_BYTES ? 32 : 16; }

static void factor_of(Collective kind, uint64_t d, bool how, int rows, double (*terms)[32])
{
  const bool bytes = kind == MULTIPLY_BYTES, turned = how && !bytes;
  if (d >> 62 != 1 || d >> 49 & 7) fail("a descriptor of a layout that is unknown here");
  const uint32_t start = (d & 0x3fff) << 4, aside = (d >> 16 & 0x3fff) << 4, next = (d >> 32 & 0x3fff) << 4;
  for (int row = 0; row < rows; row++)
    for (int term = 0; term < terms_of_a_step(kind); term++) {
      uint32_t place = turned
          ? start + row / 64 * aside + row % 64 * 2 + term / 8 * next + term % 8 * LINE_BYTES
          : start + row / 8 * next + row % 8 * LINE_BYTES + term * (bytes ? 1 : 2);
      place ^= (place / LINE_BYTES & 7) * 16;
      const char *at = piece_at(place & ~15u) + place % 16;
      if (bytes) {
        terms[row][term] = how ? (double)*(const int8_t *)at : (double)*(const uint8_t *)at;
        continue;
      }
      uint16_t bits;
      memcpy(&bits, at, 2);
      terms[row][term] = kind == MULTIPLY_F16 ? f32_of_f16(bits) : f32_bits((uint32_t)bits << 16);
    }
}

void group_fence() { run.self->ordered = true; }

static void ask(Product product)
{
  Fiber &self = *run.self;
  if (!self.ordered) fail("a product begins while its registers may be in use (wgmma.fence)");
  void *const sums = product.sums;
  auto [held, fresh] = self.held.try_emplace(sums);
  if (fresh) {
    held->second.resize(product.columns / 2);
    memcpy(held->second.data(), sums, product.columns / 2 * sizeof(uint32_t));
    memset(sums, poison(), product.columns / 2 * sizeof(uint32_t));
  }
  self.asked_products.push_back(product);
}

/* `on`: sums go on from what they are, else from zero. */
void multiply_group(Collective kind, int columns, bool left, bool right, void *sums, uint64_t a,
                    uint64_t b, bool on)
{
  if (!on && run.self->held.count(sums)) fail("sums begin anew while products add to them");
  if (!on) memset(sums, 0, columns / 2 * sizeof(uint32_t));
  ask({kind, columns, left, right, sums, a, b});
}

/* Of which a thread has four words of the left factor: rows g, g + 8, g and g + 8 of its warp's, terms
   2t and 2t + 1, those 8 on in the last two. */
void multiply_words(Collective kind, int columns, bool right, void *sums, const uint32_t (&words)[4],
                    uint64_t b)
{
  Product product = {kind, columns, false, right, sums, 0, b, true};
  memcpy(product.words, words, sizeof words);
  ask(product);
}

static void factor_of(Collective kind, const Fiber *group, size_t n, double (*terms)[32])
{
  for (int k = 0; k < 128; k++)
    for (int word = 0; word < 4; word++)
      for (int half = 0; half < 2; half++) {
        const uint16_t bits = (uint16_t)(group[k].products.front()[n].words[word] >> 16 * half);
        const int row = k / 32 * 16 + k % 32 / 4 + word % 2 * 8, term = k % 4 * 2 + word / 2 * 8 + half;
        terms[row][term] = kind == MULTIPLY_F16 ? f32_of_f16(bits) : f32_bits((uint32_t)bits << 16);
      }
}

void group_commit()
{
  run.self->products.push_back(std::move(run.self->asked_products));
  run.self->asked_products.clear();
}

/* One product of the group whose first thread this is: the `n`-th of the oldest that it waits for. */
static void multiply_together(Fiber *group, size_t n)
{
  const Product &first = group[0].products.front()[n];
  static double left[64][32], right[256][32];
  if (first.in_registers) factor_of(first.kind, group, n, left);
  else factor_of(first.kind, first.a, first.left, 64, left);
  factor_of(first.kind, first.b, first.right, first.columns, right);
  for (int k = 0; k < 128; k++) {
    const Product &own = group[k].products.front()[n];
    if (own.kind != first.kind || own.columns != first.columns || own.left != first.left ||
        own.right != first.right || own.a != first.a || own.b != first.b ||
        own.in_registers != first.in_registers)
      fail("threads of a warpgroup ask for different products");
    uint32_t *sums = group[k].held[own.sums].data();
    const int top = k / 32 * 16 + k % 32 / 4, side = k % 4 * 2;
    for (int at = 0; at < own.columns / 2; at++) {
      const int row = top + at / 2 % 2 * 8, column = at / 4 * 8 + side + at % 2;
      double sum = 0; /* of bytes exact */
      for (int term = 0; term < terms_of_a_step(own.kind); term++)
        sum += left[row][term] * right[column][term];
      sums[at] = own.kind == MULTIPLY_BYTES ? sums[at] + (uint32_t)(int32_t)sum
                                            : bits_f32(cut_off(f32_bits(sums[at]) + sum));
    }
  }
}

static bool under_way(const Fiber &f, const void *sums)
{
  for (const auto &group : f.products)
    for (const Product &p : group) if (p.sums == sums) return true;
  for (const Product &p : f.asked_products) if (p.sums == sums) return true;
  return false;
}

void group_await(uint32_t later)
{
  Fiber &self = *run.self;
  Fiber *group = &self - self.id % 128;
  if (self.block->fibers.size() - (self.id - self.id % 128) < 128)
    fail("a warpgroup has 128 threads, here are fewer");
  self.ordered = false, self.operand = (int)later, self.state = AT_GROUP;
  for (int k = 0; k < 128; k++)
    if (group[k].state != AT_GROUP) return leave();
  for (int k = 0; k < 128; k++)
    if (group[k].operand != (int)later || group[k].products.size() != group[0].products.size())
      fail("threads of a warpgroup wait for different products");
  for (; group[0].products.size() > later;) {
    const size_t count = group[0].products.front().size();
    for (int k = 0; k < 128; k++)
      if (group[k].products.front().size() != count) fail("groups of products differ");
    for (size_t n = 0; n < count; n++) multiply_together(group, n);
    for (int k = 0; k < 128; k++) group[k].products.pop_front();
  }
  for (int k = 0; k < 128; k++) {
    Fiber &f = group[k];
    for (auto held = f.held.begin(); held != f.held.end();) {
      if (under_way(f, held->first)) { ++held; continue; }
      memcpy(held->first, held->second.data(), held->second.size() * sizeof(uint32_t));
      held = f.held.erase(held);
    }
    f.state = READY;
  }
  run.progress++;
  leave();
}

void show_stores() { run.self->shown++; }

void ready_arrive(void *at)
{
  Ready &r = ready_at(at);
  arrive(r);
  settle(r);
}

/* Registers that a thread gives go to a pool of its block, and who takes some waits until there are
   enough in it (PTX ISA: setmaxnreg). The pool has what the launch allocated and no more. */
void change_registers(int count, bool more)
{
  Fiber &self = *run.self;
  if (count % 8 || count < 24 || count > 256) fail("a thread cannot have %d registers", count);
  if (!run.registers) fail("registers change hands and the launch bounds say no number of blocks");
  const uint32_t wanted = (uint32_t)count, had = self.registers;
  if (more ? wanted < had : wanted > had)
    fail("a thread of %u registers %s %d", had, more ? "takes only" : "gives none and keeps", count);
  self.operand = count;
  for (; more && self.block->spare < wanted - had; leave()) self.state = AT_REGISTERS;
  self.block->spare += had, self.block->spare -= wanted;
  self.registers = wanted;
  run.progress++;
  if (more) return;
  for (Fiber &f : self.block->fibers)
    if (f.state == AT_REGISTERS) f.state = READY;
}

/* At the end of a thread. */
static void all_multiplied(const Fiber &f)
{
  if (!f.products.empty() || !f.asked_products.empty())
    fail("a thread ends while products of its warpgroup are under way");
}

}  // namespace af
