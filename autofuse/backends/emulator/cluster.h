/* Clusters: blocks that are alive together and write to each other's shared memory. */
namespace af {

uint32_t cluster_rank() { return run.self->block->id % run.cluster; }

void cluster_arrive()
{
  Fiber &self = *run.self;
  if (self.cluster != Fiber::NOWHERE) fail("arrives twice at the barrier of its cluster");
  self.cluster = Fiber::ARRIVED;
  if (++run.cluster_arrived < run.cluster * self.block->fibers.size()) return;
  run.cluster_arrived = 0;
  run.progress++;
  for (Block &b : *run.blocks)
    for (Fiber &f : b.fibers) {
      f.cluster = Fiber::MET;
      if (f.state == AT_CLUSTER) f.state = READY;
    }
}

void cluster_wait()
{
  Fiber &self = *run.self;
  if (self.cluster == Fiber::NOWHERE) fail("waits for its cluster before it has arrived");
  if (self.cluster == Fiber::ARRIVED) {
    self.state = AT_CLUSTER;
    leave();
  }
  self.cluster = Fiber::NOWHERE;
}

void remote_write(void *at, uint32_t rank, const void *value, uint32_t bytes)
{
  in_shared(at, bytes, bytes, "what another block is written");
  if (rank >= run.cluster) fail("block %u of a cluster of %u is written to", rank, run.cluster);
  Block &to = (*run.blocks)[rank];
  if (&to != run.active && to.shared.empty()) fail("block %u of the cluster has not begun", rank);
  if (to.done == to.fibers.size()) fail("block %u of the cluster has ended", rank);
  run.progress++;
  if (&to == run.active) {
    memcpy(at, value, bytes);
    return;
  }
  size_t before = 0;
  for (const Region &r : run.regions) {
    if ((char *)at >= r.start && (char *)at < r.start + r.bytes)
      memcpy(to.shared.data() + before + ((char *)at - r.start), value, bytes);
    before += r.bytes;
  }
}

}  // namespace af
