/* Bounds, alignment and order of accesses to buffers. */

static bool seen(uint32_t thread, uint32_t epoch, uint32_t tick, uint32_t steps)
{
  const Fiber &self = *run.self;
  const uint32_t other = thread - 1, threads = (uint32_t)self.block->fibers.size();
  if (other == self.global) return true;
  const uint32_t block = other / threads;
  if (block == self.block->id) {
    if (epoch < self.block->epoch) return true;
    if (other % threads / 32 == self.id / 32 && steps < self.steps) return true;
  }
  const Known *both[] = {&self.known, self.block->known.get()};
  for (const Known *known : both) {
    if (block < known->epochs.size() && epoch < known->epochs[block]) return true;
    auto found = known->ticks.find(other);
    if (found != known->ticks.end() && tick <= found->second) return true;
  }
  return false;
}

[[noreturn]] static void race(const char *name, uint64_t element, const char *what, uint32_t thread,
                              const char *how)
{
  const uint32_t threads = (uint32_t)run.self->block->fibers.size(), other = thread - 1;
  fail("race on %s[%llu]: %s here and %s by thread %u of block %u, in no order", name,
       (unsigned long long)element, what, how, other % threads, other / threads);
}

static void note(Shadow &s, const char *name, uint64_t element, Access kind)
{
  Fiber &self = *run.self;
  const uint32_t me = self.global + 1;
  const char *what = kind == READ ? "read" : "written";
  if (s.writer && !(s.atomic && kind == ATOMIC) && !seen(s.writer, s.epoch, s.tick, s.steps))
    race(name, element, what, s.writer, s.atomic ? "changed atomically" : "written");
  if (kind == READ) {
    s.reader = me, s.reader_epoch = self.block->epoch;
    s.reader_tick = self.tick, s.reader_steps = self.steps;
    return;
  }
  if (s.reader && !seen(s.reader, s.reader_epoch, s.reader_tick, s.reader_steps))
    race(name, element, what, s.reader, "read");
  s.writer = me, s.epoch = self.block->epoch, s.tick = self.tick, s.steps = self.steps;
  s.atomic = kind == ATOMIC;
}

char *access(const Buffer *b, const void *at, unsigned bytes, unsigned align, Access kind)
{
  const int64_t offset = (const char *)at - b->data;
  const char *what = kind == READ ? "read" : kind == WRITE ? "written" : "changed atomically";
  if (offset < 0 || bytes > b->bytes || (uint64_t)offset > b->bytes - bytes)
    fail("%s[%lld] is out of bounds: %u bytes %s of a buffer of %llu elements", b->name,
         (long long)(offset / (int64_t)b->unit), bytes, what,
         (unsigned long long)(b->bytes / b->unit));
  if ((uintptr_t)at % align)
    fail("misaligned access to %s[%lld]: %u bytes %s at an address that is no multiple of %u",
         b->name, (long long)(offset / (int64_t)b->unit), bytes, what, align);
  if (kind != READ && !b->writable) fail("input %s is written", b->name);
  run.self->touched = true;
  if (run.expired) fail("takes too long: an endless loop?");
  if (b->shadow)
    for (int64_t e = offset / b->unit; e * b->unit < offset + (int64_t)bytes; e++)
      note(b->shadow[e], b->name, (uint64_t)e, kind);
  if (b->shadow && kind != READ) run.self->unfenced = true;
  if (b->shadow && kind == WRITE) run.progress++;
  return (char *)at;
}

void wait_for_earlier()
{
  Fiber &self = *run.self;
  if (self.touched) fail("waits for earlier kernels after it has accessed a buffer");
  self.waited = run.early = true;
}

char *shared_start() { return run.dynamic.data(); }

/* What is known of an element of shared memory: nothing yet, if a block before has left it. */
static Shadow &trace(uint64_t offset)
{
  Shadow &s = run.traces[offset];
  const uint32_t threads = (uint32_t)run.self->block->fibers.size(), own = run.self->block->id;
  const bool stale = (s.writer && (s.writer - 1) / threads != own) ||
                     (s.reader && (s.reader - 1) / threads != own);
  if (stale) s = Shadow();
  return s;
}

/* Fails where a copy is on its way to some of these bytes of shared memory. */
static void not_arriving(const char *at, unsigned bytes)
{
  const auto &arriving = run.self->block->arriving;
  if (arriving.empty()) return;
  for (const char *p = at - (uintptr_t)at % 16; p < at + bytes; p += 16)
    if (arriving.count(p)) fail("shared memory is accessed while a copy to it is under way");
}

char *shared_access(int64_t offset, unsigned bytes, unsigned align, unsigned unit, Access kind)
{
  const uint64_t size = run.dynamic.size();
  if (offset < 0 || bytes > size || (uint64_t)offset > size - bytes)
    fail("dynamic shared memory is accessed out of bounds: byte %lld of %llu", (long long)offset,
         (unsigned long long)size);
  if (offset % align) fail("misaligned access to dynamic shared memory at byte %lld",
                           (long long)offset);
  if (run.expired) fail("takes too long: an endless loop?");
  not_arriving(shared_start() + offset, bytes);
  if (kind == WRITE && !run.stored.empty())
    for (uint64_t e = offset / 16; e * 16 < offset + (uint64_t)bytes; e++)
      run.stored[e] = {run.self->id + 1, run.self->shown};
  if (!run.traces.empty())
    for (uint64_t e = offset; e < offset + (uint64_t)bytes; e += unit)
      note(trace(e), "dynamic shared memory", e, kind);
  return shared_start() + offset;
}

void fence()
{
  Fiber &self = *run.self;
  self.fence_known = self.known;
  self.fence_block = self.block->known;
  self.fence_epoch = self.block->epoch;
  self.fence_tick = self.tick++;
  self.fenced = true;
  self.unfenced = false;
}

/* What the last fence of a thread made visible. */
static void fenced_by(const Fiber &f, Known &into)
{
  into.join(f.fence_known);
  into.join(*f.fence_block);
  if (f.fence_epoch) into.add_epoch(f.block->id, f.fence_epoch);
  into.add_tick(f.global, f.fence_tick);
}

void atomic_done(const void *at, bool synchronises, bool changed)
{
  Fiber &self = *run.self;
  if (!synchronises) {
    run.float_atomics = true;
    return leave();
  }
  Known &released = run.released[at];
  if (self.read_at != at || self.read_version != released.version) self.known.join(released);
  if (changed) {
    run.progress++;
    if (self.fenced) fenced_by(self, released);
    released.join(self.block->published);
  }
  self.read_at = at, self.read_version = released.version;
  leave();
}
