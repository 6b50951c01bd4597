/* Copies that arrive later. A copy is made when a thread that waits for it could go on, as late as
   can be; until then there is poison, so that who does not wait, or waits for the wrong phase, or
   asks for a row before all have read the one in its place, computes with that. */
namespace af {

static void in_shared(const void *at, uint64_t bytes, uint32_t align, const char *what)
{
  if ((uintptr_t)at % align) fail("%s in shared memory is at no multiple of %u bytes", what, align);
  for (const Region &r : run.regions)
    if ((const char *)at >= r.start && (const char *)at + bytes <= r.start + r.bytes) return;
  fail("%s is not in shared memory", what);
}

static Ready &ready_at(void *at)
{
  auto found = run.self->block->ready.find(at);
  if (found == run.self->block->ready.end()) fail("an mbarrier is used before it is initialised");
  return found->second;
}

void ready_init(void *at, uint32_t count)
{
  in_shared(at, 8, 8, "an mbarrier");
  run.self->block->ready[at] = {count, count, 0, 0, {}, {}, {}};
}

/* Ends the phase if nothing is missing but the copies' arrival. */
static void settle(Ready &r)
{
  int64_t under_way = 0;
  for (const Copying &c : r.copies) under_way += c.bytes;
  if (r.pending || r.expected > under_way) return;
  if (r.expected < under_way)
    fail("%lld bytes arrive at an mbarrier that expects %lld", (long long)under_way,
         (long long)r.expected);
  for (const Copying &c : r.copies) memcpy(c.to, c.from, c.bytes);
  r.copies.clear();
  r.pending = r.count, r.expected = 0, r.phase++;
  r.passed = r.arriving;
  run.progress++;
}

/* Who waits for a phase knows what those did before that arrived in it (PTX ISA: mbarrier.arrive
   releases, mbarrier.try_wait acquires). */
static void arrive(Ready &r)
{
  settle(r);
  if (!r.pending) fail("more arrivals at an mbarrier than it counts, which is %u", r.count);
  r.pending--;
  Fiber &self = *run.self;
  r.arriving.join(self.known);
  r.arriving.add_tick(self.global, self.tick++);
}

void expect_bytes(void *at, uint32_t bytes)
{
  Ready &r = ready_at(at);
  arrive(r);
  r.expected += bytes;
}

void start_copy(void *to, const Buffer *b, const void *from, uint32_t bytes, void *ready)
{
  if (bytes % 16) fail("a copy of %u bytes, which is no multiple of 16", bytes);
  in_shared(to, bytes, 16, "what is copied to");
  access(b, from, bytes, 16, READ);
  memset(to, poison(), bytes);
  (ready ? ready_at(ready).copies : run.self->copies).push_back({(char *)to, (const char *)from, bytes});
}

void arrive_after_copies(void *at)
{
  Ready &r = ready_at(at);
  arrive(r);
  for (const Copying &c : run.self->copies) {
    r.expected += c.bytes;
    r.copies.push_back(c);
  }
  run.self->copies.clear();
}

bool ready_passed(void *at, uint32_t parity)
{
  Ready &r = ready_at(at);
  if ((r.phase & 1) == parity) settle(r);
  if ((r.phase & 1) == parity) {
    leave();
    return false;
  }
  run.self->known.join(r.passed);
  return true;
}

/* Some threads of a block, `count` of them, at a barrier of their own (PTX ISA: barrier.sync). */
void group_barrier(uint32_t number, uint32_t count)
{
  if (number > 15) fail("a block has 16 barriers, this is number %u", number);
  Ready &r = run.self->block->named.try_emplace(number, Ready{count, count, 0, 0, {}, {}, {}}).first->second;
  if (r.count != count) fail("barrier %u is of %u threads, and of %u", number, r.count, count);
  const uint32_t phase = r.phase;
  arrive(r);
  settle(r);
  while (r.phase == phase) leave();
  run.self->known.join(r.passed);
}

/* At the end of a block: its memory may be another's when a copy arrives. */
static void all_arrived(Block &b)
{
  bool under_way = false;
  for (const auto &each : b.ready) under_way |= !each.second.copies.empty();
  for (const Fiber &f : b.fibers) under_way |= !f.copies.empty();
  under_way |= !b.arriving.empty();
  if (under_way) fail("the block ends while copies to its shared memory are under way");
}

}  // namespace af
