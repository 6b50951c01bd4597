/* Boxes that tensor maps say how to copy. A map is what the driver's cuTensorMapEncodeTiled was told,
   in an encoding of our own (maps.py). A box arrives as late as it may, when who waits for its bytes
   could go on; until then there is poison in its place. It is written by another proxy than stores go
   through: who stored or read there must have shown that (fence.proxy.async), and the thread that
   asks for the box must know of it. */
namespace af {

static const Buffer *buffer_at(uint64_t address)
{
  for (int k = 0; k < run.kernel->parameters; k++) {
    const Buffer &b = run.arguments[k];
    if (address >= (uint64_t)b.data && address < (uint64_t)b.data + b.bytes) return &b;
  }
  fail("a tensor map is of memory that is no argument of the kernel");
}

/* 16 bytes that a box is going to be copied over. */
static void given_up(char *to)
{
  if (run.dynamic.empty() || to < run.dynamic.data() ||
      to >= run.dynamic.data() + run.dynamic.size() || run.stored.empty())
    return;
  const uint64_t offset = (uint64_t)(to - run.dynamic.data());
  Stored &s = run.stored[offset / 16];
  if (s.thread && run.self->block->fibers[s.thread - 1].shown == s.shown)
    fail("a box is copied over what thread %u has stored and not shown (fence.proxy.async)",
         s.thread - 1);
  s = Stored();
  for (uint64_t e = offset; e < offset + 16; e++) {
    const Shadow t = trace(e);
    if (t.writer && !seen(t.writer, t.epoch, t.tick, t.steps))
      race("dynamic shared memory", e, "copied over by a box", t.writer, "written");
    if (t.reader && !seen(t.reader, t.reader_epoch, t.reader_tick, t.reader_steps))
      race("dynamic shared memory", e, "copied over by a box", t.reader, "read");
  }
}

/* As cuda_maps.h has it: the lines of the box one after another, outermost dimension last. */
void start_box(void *at, const TensorMap *m, int rank, int32_t x, int32_t y, int32_t z, void *ready)
{
  static const char zeros[16] = {};
  if (m->magic != MAP_MAGIC) fail("a tensor map that no driver has made");
  if ((uintptr_t)m % 64) fail("a tensor map lies at no multiple of 64 bytes");
  if ((int)m->rank != rank) fail("a box of %d dimensions by a tensor map of %u", rank, m->rank);
  const uint32_t place = shared_place(at), item = m->element, line = m->box[0] * item;
  if (place % 128) fail("a box in shared memory is at no multiple of 128 bytes");
  const int64_t from[3] = {x, y, z}, rows = m->box[1], planes = rank > 2 ? m->box[2] : 1;
  in_shared(at, (uint64_t)rows * planes * line, 16, "a box");
  const Buffer *const b = buffer_at(m->address);
  std::vector<Copying> &copies = ready_at(ready).copies;
  char *const start = (char *)at - place; /* what is at place 0, were it there */
  for (int64_t n = 0; n < rows * planes; n++) {
    const int64_t row = from[1] + n % rows, plane = from[2] + n / rows;
    const bool there = row >= 0 && row < (int64_t)m->sizes[1] && plane >= 0 &&
                       plane < (rank > 2 ? (int64_t)m->sizes[2] : 1);
    for (uint32_t byte = 0; byte < line; byte += 16) {
      const uint32_t own = place + (uint32_t)n * line + byte;
      char *const to = start + (m->swizzle == 128 ? own ^ (own / 128 & 7) * 16 : own);
      const int64_t first = from[0] + byte / item, count = 16 / item;
      int64_t low = first < 0 ? -first : 0, high = (int64_t)m->sizes[0] - first;
      low = low < count ? low : count, high = high > count ? count : high < low ? low : high;
      if (!there) low = high = 0;
      given_up(to);
      memset(to, poison(), 16);
      const int64_t offset = first * item + row * (int64_t)m->strides[0] +
                             (rank > 2 ? plane * (int64_t)m->strides[1] : 0);
      const char *source = (const char *)m->address + offset;
      const uint32_t skip = (uint32_t)(low * item), end = (uint32_t)(high * item);
      if (end > skip) access(b, source + skip, end - skip, item, READ);
      if (skip) copies.push_back({to, zeros, skip});
      if (end > skip) copies.push_back({to + skip, source + skip, end - skip});
      if (end < 16) copies.push_back({to + end, zeros, 16 - end});
    }
  }
}

/* Bytes that an mbarrier counts before its phase ends, without an arrival. */
void expect_more(void *at, uint32_t bytes)
{
  Ready &r = ready_at(at);
  settle(r);
  r.expected += bytes;
}

}  // namespace af
