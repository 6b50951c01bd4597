/* Barriers and operations of a warp. */

/* What fences before a barrier made visible may be released by any thread after it. */
static void publish(Block &b, bool all)
{
  if (all) {
    b.published.join(*b.known);
    b.published.add_epoch(b.id, b.epoch + 1);
    return;
  }
  for (Fiber &f : b.fibers)
    if (f.fenced) fenced_by(f, b.published);
}

static void open_barrier(Block &b)
{
  const Fiber &first = b.fibers[0];
  for (Fiber &f : b.fibers)
    if (f.site.line != first.site.line || strcmp(f.site.file, first.site.file) != 0)
      fail("threads wait at different barriers: %s line %d and %s line %d", first.site.file,
           first.site.line, f.site.file, f.site.line);
  bool any = false, all = true;
  Known more;
  for (Fiber &f : b.fibers) {
    f.state = READY;
    any = any || f.fenced, all = all && !f.unfenced;
    if (f.known.empty()) continue;
    more.join(f.known);
    f.known = Known();
  }
  if (!more.empty()) {
    more.join(*b.known);
    b.known = std::make_shared<const Known>(std::move(more));
  }
  if (any) publish(b, all);
  b.total = (int)b.votes;
  b.arrived = b.votes = 0;
  b.epoch++;
  run.progress++;
}

int barrier(Site site, int predicate)
{
  Fiber &self = *run.self;
  Block &b = *self.block;
  self.site = site;
  self.state = AT_BARRIER;
  b.votes += predicate != 0;
  if (++b.arrived == b.fibers.size()) open_barrier(b);
  leave();
  return b.total;
}

static int source_lane(const Fiber &f, int lane)
{
  const int width = f.width, start = lane & ~(width - 1), last = start + width - 1;
  int source = lane;
  switch (f.kind) {
    case SHUFFLE: source = start + (f.operand & (width - 1)); break;
    case SHUFFLE_UP: source = lane - f.operand < start ? lane : lane - f.operand; break;
    case SHUFFLE_DOWN: source = lane + f.operand > last ? lane : lane + f.operand; break;
    case SHUFFLE_XOR: source = (lane ^ f.operand) > last ? lane : lane ^ f.operand; break;
    default: break;
  }
  return source;
}

static uint64_t reduced(Collective kind, uint64_t a, uint64_t b)
{
  const uint32_t x = (uint32_t)a, y = (uint32_t)b;
  switch (kind) {
    case SUM: return x + y;
    case MIN_SIGNED: return (uint32_t)std::min((int32_t)x, (int32_t)y);
    case MAX_SIGNED: return (uint32_t)std::max((int32_t)x, (int32_t)y);
    case MIN_UNSIGNED: return std::min(x, y);
    case MAX_UNSIGNED: return std::max(x, y);
    case ALL_BITS: return x & y;
    case ANY_BITS: return x | y;
    default: return x ^ y;
  }
}

static uint64_t answer(const Fiber *warp, int lane, uint32_t mask)
{
  const Fiber &f = warp[lane];
  if (f.kind >= SHUFFLE && f.kind <= SHUFFLE_XOR) {
    const int source = source_lane(f, lane);
    if (!(mask >> source & 1)) fail("a shuffle reads lane %d, which is not in its mask", source);
    return warp[source].value;
  }
  uint64_t made = 0;
  bool first = true;
  for (int k = 0; k < 32; k++) {
    if (!(mask >> k & 1)) continue;
    const uint64_t value = warp[k].value;
    if (f.kind == BALLOT) made |= (uint64_t)(value != 0) << k;
    else if (f.kind == MATCH) made |= (uint64_t)(value == f.value) << k;
    else if (f.kind != SYNC) made = first ? value : reduced(f.kind, made, value);
    first = false;
  }
  return made;
}

/* What a tensor core does for a warp. */
static void together(Collective kind, Fiber *warp);

uint64_t collective(Collective kind, uint32_t mask, uint64_t value, int operand, int width)
{
  Fiber &self = *run.self;
  const int lane = (int)(self.id % 32);
  Fiber *warp = &self - lane;
  const uint64_t size = self.block->fibers.size() - (self.id - lane);
  if (!(mask >> lane & 1)) fail("lane %d takes part in a warp operation but is not in its mask", lane);
  if (size < 32 && mask >> size) fail("a warp operation waits for lanes beyond the block");
  if (width < 1 || width > 32 || (width & (width - 1))) fail("a shuffle has width %d", width);
  self.kind = kind, self.mask = mask, self.value = value;
  self.operand = operand, self.width = width;
  self.state = AT_COLLECTIVE;
  for (int k = 0; k < 32; k++)
    if (mask >> k & 1 && (warp[k].state != AT_COLLECTIVE || warp[k].mask != mask)) {
      leave();
      return self.result;
    }
  for (int k = 0; k < 32; k++)
    if (mask >> k & 1 && warp[k].kind != kind) fail("lanes of a warp are at different operations");
  if (kind >= MATRICES) together(kind, warp);
  else
    for (int k = 0; k < 32; k++)
      if (mask >> k & 1) warp[k].result = answer(warp, k, mask);
  for (int k = 0; k < 32; k++)
    if (mask >> k & 1) warp[k].state = READY, warp[k].steps++;
  run.progress++;
  leave();
  return self.result;
}

}  // namespace af
