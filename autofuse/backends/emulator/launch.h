/* Blocks, faults and the entry. */
#define AF_EDGE __attribute__((weak, visibility("hidden")))
extern "C" {
extern char af_common_start[] __asm__("__start_af_shared") AF_EDGE;
extern char af_common_stop[] __asm__("__stop_af_shared") AF_EDGE;
extern char af_statics_first[] AF_EDGE, af_statics_last[] AF_EDGE;
}

namespace af {

static void entry()
{
  run.kernel->call(run.arguments);
  if (run.early && !run.self->waited) fail("ends without having waited for earlier kernels");
  all_multiplied(*run.self);
  run.self->state = DONE;
  if (++run.self->block->done == run.self->block->fibers.size()) all_arrived(*run.self->block);
  run.progress++;
  to_scheduler();
}

/* Where __shared__ variables are: those of the kernel and those of device functions, which are in
   sections, and those of templates, for which the compiler ignores the section: all that is zero at
   first and was linked between two edges. */
static std::vector<Region> shared_regions()
{
  const char *const edges[][2] = {{run.kernel->shared, run.kernel->shared_end},
                                  {af_common_start, af_common_stop},
                                  {af_statics_first, af_statics_last}};
  std::vector<Region> found;
  for (auto &[start, end] : edges)
    if (end > start) found.push_back({(char *)start, (size_t)(end - start)});
  if (!run.dynamic.empty()) found.push_back({run.dynamic.data(), run.dynamic.size()});
  return found;
}

/* Makes the shared memory that of `b`, poisoned if the block is new. */
static void activate(Block &b)
{
  if (run.active == &b) return;
  if (run.active && run.blocks->size() > 1) {
    std::vector<char> &kept = run.active->shared;
    kept.clear();
    for (const Region &r : run.regions) kept.insert(kept.end(), r.start, r.start + r.bytes);
  }
  run.active = &b;
  const char *from = b.shared.data();
  for (const Region &r : run.regions) {
    if (b.shared.empty()) memset(r.start, poison(), r.bytes);
    else memcpy(r.start, from, r.bytes);
    from += r.bytes;
  }
}

static Dim position(uint32_t id, Dim size)
{
  return {id % size.x, id / size.x % size.y, id / size.x / size.y};
}

static bool start(Block &b, uint32_t id, size_t first_stack_index)
{
  const uint32_t threads = block_dim.x * block_dim.y * block_dim.z;
  b.id = id;
  b.index = position(id, grid_dim);
  b.arrived = b.done = b.epoch = b.votes = 0;
  b.spare = 0;
  b.known = std::make_shared<const Known>();
  b.published = Known();
  b.shared.clear();
  b.ready.clear(), b.named.clear(), b.arriving.clear();
  std::fill(run.stored.begin(), run.stored.end(), Stored());
  b.fibers.resize(threads);
  for (uint32_t t = 0; t < threads; t++) {
    Fiber &f = b.fibers[t];
    f.place = {position(t, block_dim), b.index};
    char *top = stack(first_stack_index + t);
    if (!top) {
      report("no memory for the stacks of %zu threads", first_stack_index + threads);
      return false;
    }
    f.sp = first_stack(top, entry);
    f.block = &b;
    f.state = READY;
    f.id = t, f.global = id * threads + t;
    f.tick = f.steps = 0;
    f.fenced = f.unfenced = f.touched = f.waited = false;
    f.cluster = Fiber::NOWHERE;
    f.read_at = nullptr;
    f.copies.clear(), f.asked.clear(), f.groups.clear();
    f.asked_products.clear(), f.products.clear(), f.held.clear();
    f.ordered = false, f.shown = 0, f.registers = run.registers;
    if (!f.known.empty()) f.known = Known();
  }
  return true;
}

static std::vector<uint32_t> ordered(uint32_t count)
{
  std::vector<uint32_t> made(count);
  for (uint32_t k = 0; k < count; k++) made[k] = run.order == 1 ? count - 1 - k : k;
  if (run.order > 1) std::shuffle(made.begin(), made.end(), run.random);
  return made;
}

/* Threads in this order run until they wait; how many could. */
static uint32_t pass(Block &b, const uint32_t *order, size_t count)
{
  uint32_t moved = 0;
  for (size_t k = 0; k < count && !run.failed; k++) {
    Fiber &f = b.fibers[order[k]];
    if (f.state != READY) continue;
    moved++;
    run.self = &f;
    here = &f.place;
    af_switch(&run.scheduler, f.sp);
    run.self = nullptr;
  }
  return moved;
}

/* Lets every thread of a block run; how many could. In a fixed order each warp goes as far ahead
   as it can before the next one starts, which a missing barrier does not survive. */
static uint32_t sweep(Block &b)
{
  activate(b);
  const std::vector<uint32_t> order = ordered((uint32_t)b.fibers.size());
  if (run.order > 1) return pass(b, order.data(), order.size());
  uint32_t moved = 0;
  for (size_t first = 0, next; first < order.size() && !run.failed; first = next) {
    for (next = first; next < order.size() && order[next] / 32 == order[first] / 32;) next++;
    for (;;) {
      const uint64_t before = run.progress;
      const uint32_t now = pass(b, order.data() + first, next - first);
      moved += now;
      if (!now || run.failed || run.progress == before) break;
    }
  }
  return moved;
}

/* Threads that wait for registers which nobody is going to give: the pool never has them. */
static void short_of_registers(const Block &b)
{
  uint32_t waiting = 0;
  const Fiber *first = nullptr;
  for (const Fiber &f : b.fibers)
    if (f.state == AT_REGISTERS && !waiting++) first = &f;
  if (waiting)
    report("deadlock: %u threads of block (%u,%u,%u) wait for registers: each of the %zu began with %u, "
           "one that has %u takes %d, and %llu are left", waiting, b.index.x, b.index.y, b.index.z,
           b.fibers.size(), run.registers, first->registers, first->operand,
           (unsigned long long)b.spare);
}

static void stuck(const std::vector<Block> &blocks)
{
  for (const Block &b : blocks) short_of_registers(b);
  for (const Block &b : blocks) {
    uint32_t warps = 0, in_cluster = 0;
    const Fiber *waits = nullptr;
    for (const Fiber &f : b.fibers) {
      warps += f.state == AT_COLLECTIVE || f.state == AT_GROUP;
      in_cluster += f.state == AT_CLUSTER;
      if (f.state == AT_BARRIER) waits = &f;
    }
    const Dim i = b.index;
    const uint32_t all = (uint32_t)b.fibers.size();
    if (waits)
      report("divergent barrier: %u of %u threads of block (%u,%u,%u) wait at __syncthreads (%s line "
           "%d), %u have ended and %u wait for their warp", b.arrived, all, i.x, i.y, i.z,
           waits->site.file, waits->site.line, b.done, warps);
    else if (warps)
      report("%u of %u threads of block (%u,%u,%u) wait for lanes of their warp that never come",
           warps, all, i.x, i.y, i.z);
    else if (in_cluster)
      report("%u of %u threads of block (%u,%u,%u) wait for blocks of their cluster that never come",
             in_cluster, all, i.x, i.y, i.z);
  }
  report("threads wait for a value that nobody is going to write");
}

static void finish(std::vector<Block> &blocks)
{
  int idle = 0;
  for (;;) {
    const uint64_t before = run.progress;
    uint32_t moved = 0;
    for (uint32_t k : ordered((uint32_t)blocks.size()))
      if (!run.failed && blocks[k].done < blocks[k].fibers.size()) moved += sweep(blocks[k]);
    bool all = true;
    for (const Block &b : blocks) all = all && b.done == b.fibers.size();
    if (all || run.failed) return;
    idle = run.progress == before ? idle + 1 : 0;
    if (!moved || idle > IDLE_SWEEPS) return stuck(blocks);
    if (run.expired) return report("takes too long: an endless loop?");
  }
}

static void run_grid()
{
  static std::vector<Block> blocks; /* kept: a failed launch leaves its fibers where they are */
  const uint32_t count = grid_dim.x * grid_dim.y * grid_dim.z;
  const size_t threads = (size_t)block_dim.x * block_dim.y * block_dim.z;
  const uint32_t alive = run.cooperative ? count : run.cluster;
  blocks.clear();
  blocks.resize(alive);
  run.blocks = &blocks;
  for (uint32_t group : ordered(count / alive)) {
    if (run.failed) return;
    run.active = nullptr;
    run.cluster_arrived = 0;
    for (uint32_t k = 0; k < alive; k++)
      if (!start(blocks[k], group * alive + k, k * threads)) return;
    finish(blocks);
  }
}

/* ---- faults ---- */

static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static int alarms;

static void on_fault(int signal, siginfo_t *, void *)
{
  if (!run.self) { /* not in a kernel: nothing to go back to */
    ::signal(signal, SIG_DFL);
    raise(signal);
    return;
  }
  fail("crashed with signal %d (%s)", signal,
       signal == SIGSEGV || signal == SIGBUS ? "a wild pointer, or too much stack" : "arithmetic");
}

/* The second time, nothing looked at the flag: stop the thread where it is. */
static void on_alarm(int, siginfo_t *, void *)
{
  run.expired = 1;
  if (++alarms > 1 && run.self) fail("takes too long: an endless loop?");
}

struct Watch {
  struct sigaction before[4], alarm_before;
  stack_t stack_before;
  timer_t timer;
  std::vector<char> room = std::vector<char>(64 * 1024);
  explicit Watch(double limit_s)
  {
    stack_t own = {};
    own.ss_sp = room.data(), own.ss_size = room.size();
    sigaltstack(&own, &stack_before);
    struct sigaction act = {};
    act.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    act.sa_sigaction = on_fault;
    for (int k = 0; k < 4; k++) sigaction(FAULTS[k], &act, &before[k]);
    act.sa_sigaction = on_alarm;
    sigaction(SIGVTALRM, &act, &alarm_before);
    alarms = 0;
    sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGVTALRM;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer);
    itimerspec spec = {};
    spec.it_value.tv_sec = (time_t)limit_s;
    spec.it_value.tv_nsec = (long)((limit_s - (double)(time_t)limit_s) * 1e9);
    spec.it_interval.tv_sec = 1;
    timer_settime(timer, 0, &spec, nullptr);
  }
  void stop()
  {
    timer_delete(timer);
    for (int k = 0; k < 4; k++) sigaction(FAULTS[k], &before[k], nullptr);
    sigaction(SIGVTALRM, &alarm_before, nullptr);
    sigaltstack(&stack_before, nullptr);
  }
};

}  // namespace af

/* The compiler's checks of indices and of alignment call these. */
extern "C" {
struct AfSource { const char *file; uint32_t line, column; };
struct AfType { uint16_t kind, info; char name[1]; };
struct AfBounds { AfSource source; const AfType *array, *index; };
struct AfMismatch { AfSource source; const AfType *type; unsigned char align, kind; };

void __ubsan_handle_out_of_bounds_abort(AfBounds *data, uintptr_t index)
{
  af::fail("index %lld of shared or local array of type %s is out of bounds (%s line %u)",
           (long long)index, data->array->name, data->source.file, data->source.line);
}

void __ubsan_handle_type_mismatch_v1_abort(AfMismatch *data, uintptr_t)
{
  af::fail("misaligned access: %s at an address that is no multiple of %u (%s line %u)",
           data->type->name, 1u << data->align, data->source.file, data->source.line);
}

struct AfLaunch {
  uint32_t grid[3], block[3];
  uint64_t dynamic_bytes;
  int32_t order, cooperative;
  uint32_t seed, cluster, registers;
  double limit_s;
  uint64_t shared_turns, least_turns; /* what comes back */
};

/* Runs a kernel; 0, or 1 with a message. Bit 1 of the result: floats were added atomically. */
int af_launch(const af::Entry *kernel, af::Buffer *arguments, AfLaunch *how, char *message,
              uint64_t room)
{
  using namespace af;
  run.kernel = kernel, run.arguments = arguments;
  run.message = message, run.room = room;
  run.self = nullptr, run.active = nullptr;
  run.failed = run.float_atomics = run.early = false;
  run.progress = run.shared_turns = run.least_turns = 0, run.expired = 0;
  run.registers = how->registers;
  run.order = how->order, run.cooperative = how->cooperative, run.cluster = how->cluster;
  run.random.seed(how->seed);
  run.released.clear();
  run.dynamic.assign(how->dynamic_bytes, 0);
  /* Blocks that live together would need a trace each. */
  run.traces.assign(run.cooperative ? 0 : how->dynamic_bytes, Shadow());
  run.stored.assign(run.traces.size() / 16 + !run.traces.empty(), Stored());
  run.regions = shared_regions();
  grid_dim = {how->grid[0], how->grid[1], how->grid[2]};
  block_dim = {how->block[0], how->block[1], how->block[2]};
  for (int k = 0; k < kernel->parameters; k++)
    if (arguments[k].writable)
      arguments[k].shadow = (Shadow *)calloc(arguments[k].bytes / arguments[k].unit + 1,
                                             sizeof(Shadow));
  Watch watch(how->limit_s);
  run_grid();
  watch.stop();
  for (int k = 0; k < kernel->parameters; k++) free(arguments[k].shadow);
  trim_stacks();
  how->shared_turns = run.shared_turns, how->least_turns = run.least_turns;
  return (run.failed ? 1 : 0) | (run.float_atomics ? 2 : 0);
}
}
