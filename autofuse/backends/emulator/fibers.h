/* Threads as fibers of one host thread, switched only at calls into the runtime. The runtime is
   fibers.h, memory.h, waiting.h, async.h, matrix.h, warpgroup.h, cluster.h and launch.h, one after
   another. */
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
/* Saves what a call preserves, and goes on where `to` was left. */
extern "C" void af_switch(void **from, void *to);
asm(".text\n.p2align 4\naf_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n  ret\n");
static void *first_stack(char *top, void (*entry)())
{
  void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);
  *--sp = nullptr; /* where `entry` would return to; also aligns its frame */
  *--sp = (void *)entry;
  for (int k = 0; k < 6; k++) *--sp = nullptr;
  return sp;
}
#else
#include <ucontext.h>
static void af_switch(void **from, void *to)
{
  ucontext_t here;
  *from = &here;
  swapcontext(&here, (ucontext_t *)to);
}
static void *first_stack(char *top, void (*entry)())
{
  ucontext_t *made = (ucontext_t *)((uintptr_t)(top - sizeof(ucontext_t)) & ~(uintptr_t)63);
  getcontext(made);
  made->uc_stack.ss_sp = top - 100 * 1024;
  made->uc_stack.ss_size = (size_t)((char *)made - (char *)made->uc_stack.ss_sp);
  made->uc_link = nullptr;
  makecontext(made, entry, 0);
  return made;
}
#endif

namespace af {

constexpr size_t STACK_BYTES = 128 * 1024, PAGE = 4096;
constexpr int IDLE_SWEEPS = 2000;
/* A guard page costs a mapping, of which a process has some 65,000; stacks beyond are given back. */
constexpr size_t GUARDED_STACKS = 8192, KEPT_STACKS = 4096;

enum State { READY, AT_BARRIER, AT_COLLECTIVE, AT_CLUSTER, AT_GROUP, AT_REGISTERS, DONE };

/* What a thread knows of other blocks: all they did before an epoch, and what single threads did
   up to a tick. Gained by reading an integer atomically that was changed after a fence. */
struct Known {
  std::vector<uint32_t> epochs;
  std::unordered_map<uint32_t, uint32_t> ticks;
  uint64_t version = 0; /* grows with what is known */
  bool empty() const { return epochs.empty() && ticks.empty(); }
  void add_epoch(uint32_t block, uint32_t epoch)
  {
    if (epochs.size() <= block) epochs.resize(block + 1);
    if (epochs[block] < epoch) epochs[block] = epoch, version++;
  }
  void add_tick(uint32_t thread, uint32_t tick)
  {
    auto [found, fresh] = ticks.try_emplace(thread, tick);
    if (!fresh && found->second >= tick) return;
    found->second = tick, version++;
  }
  void join(const Known &other)
  {
    for (size_t k = 0; k < other.epochs.size(); k++)
      if (other.epochs[k]) add_epoch((uint32_t)k, other.epochs[k]);
    for (auto &[thread, tick] : other.ticks) add_tick(thread, tick);
  }
};
using Shared = std::shared_ptr<const Known>;

struct Shadow {
  uint32_t writer, epoch, tick, steps; /* writer and reader: thread of the grid + 1, or 0 */
  uint32_t reader, reader_epoch, reader_tick, reader_steps;
  bool atomic;
};

/* A copy under way, and an mbarrier: a phase ends when `pending` threads have arrived and as many
   bytes as were expected. */
struct Copying { char *to; const char *from; uint32_t bytes; };
struct Ready {
  uint32_t count, pending, phase;
  int64_t expected;
  std::vector<Copying> copies;
  Known arriving, passed; /* what was done before arrivals, and before those of phases that ended */
};

/* A product of a warpgroup that a thread has asked for, and who stored to 16 bytes last, of stores
   that it had shown so often before. */
struct Product {
  Collective kind;
  int columns;
  bool left, right;
  void *sums;
  uint64_t a, b;
  bool in_registers = false; /* the left factor, in `words` */
  uint32_t words[4] = {};
};
struct Stored { uint32_t thread, shown; }; /* thread of the block + 1, or 0 */

struct Block;
struct Fiber {
  Place place;
  void *sp;
  Block *block;
  State state;
  uint32_t id, global, tick, steps;
  Site site;
  int predicate;
  Collective kind;
  uint32_t mask;
  uint64_t value, result;
  int operand, width;
  enum { NOWHERE, ARRIVED, MET } cluster; /* where it is at the barrier of its cluster */
  bool fenced, unfenced; /* has fenced at all; has written since */
  bool touched, waited;  /* has accessed a buffer; has waited for earlier kernels */
  Known known;           /* since the last barrier; what came before is the block's */
  uint32_t fence_epoch, fence_tick;
  Known fence_known;
  Shared fence_block;
  std::vector<Copying> copies; /* that nothing counts yet */
  std::vector<Copying> asked;  /* copies ahead since the last group, and the groups under way */
  std::deque<std::vector<Copying>> groups;
  std::vector<Product> asked_products; /* since the last group, and the groups under way */
  std::deque<std::vector<Product>> products;
  std::unordered_map<void *, std::vector<uint32_t>> held; /* their sums, as words */
  bool ordered;                                           /* may ask for products */
  uint32_t shown, registers;
  const void *read_at; /* the last atomic, and what there was to know */
  uint64_t read_version;
};

struct Block {
  Dim index;
  uint32_t id, arrived, done, epoch, votes;
  int total;
  uint64_t spare; /* registers that its threads have given and nobody has taken */
  Shared known;
  Known published;
  std::vector<Fiber> fibers;
  std::map<const void *, Ready> ready;
  std::map<uint32_t, Ready> named; /* barriers of some of its threads */
  std::unordered_set<const char *> arriving; /* where 16 bytes are going to be */
  std::vector<char> shared; /* while other blocks run */
};

Place *here;
Dim block_dim, grid_dim;

struct Region { char *start; size_t bytes; };

static struct {
  const Entry *kernel;
  Buffer *arguments;
  char *message;
  size_t room;
  void *scheduler;
  Fiber *self;
  Block *active;
  std::vector<Block> *blocks; /* those that are alive: a cluster, or all of a cooperative grid */
  uint32_t cluster, cluster_arrived;
  uint32_t registers; /* of a thread when the kernel begins; 0: the launch bounds do not say */
  std::vector<char> dynamic;
  std::vector<Shadow> traces; /* of dynamic shared memory, by the first byte of an element */
  std::vector<Stored> stored; /* of dynamic shared memory, for each 16 bytes */
  std::map<const void *, Known> released;
  std::vector<Region> regions;
  uint64_t progress, shared_turns, least_turns; /* of what warps read together: see matrix.h */
  std::mt19937 random;
  int order;
  bool cooperative, failed, float_atomics, early;
  volatile sig_atomic_t expired;
} run;

static std::vector<char *> stacks;

static char *stack(size_t index)
{
  while (stacks.size() <= index) {
    void *made = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) return nullptr;
    if (stacks.size() < GUARDED_STACKS) mprotect(made, PAGE, PROT_NONE); /* overflow must fault */
    stacks.push_back((char *)made);
  }
  /* Different offsets, or all stacks would share the same few cache lines. */
  return stacks[index] + STACK_BYTES - index % 32 * 192;
}

static void trim_stacks()
{
  for (; stacks.size() > KEPT_STACKS; stacks.pop_back()) munmap(stacks.back(), STACK_BYTES);
}

[[noreturn]] static void to_scheduler()
{
  void *ignored;
  af_switch(&ignored, run.scheduler);
  __builtin_unreachable();
}

/* What went wrong, with the thread if one is running; the first report stands. */
static void report_list(const char *format, va_list rest)
{
  if (run.failed) return;
  size_t at = 0;
  const char *name = run.kernel ? run.kernel->name : "?";
  if (run.self) {
    const Dim t = here->thread, b = here->block;
    at = snprintf(run.message, run.room, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): ",
                  name, b.x, b.y, b.z, t.x, t.y, t.z);
  } else {
    at = snprintf(run.message, run.room, "kernel %s: ", name);
  }
  if (at < run.room) vsnprintf(run.message + at, run.room - at, format, rest);
  run.failed = true;
}

static void report(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void report(const char *format, ...)
{
  va_list rest;
  va_start(rest, format);
  report_list(format, rest);
  va_end(rest);
}

void fail(const char *format, ...)
{
  va_list rest;
  va_start(rest, format);
  report_list(format, rest);
  va_end(rest);
  if (!run.self) abort(); /* the scheduler itself reports */
  to_scheduler();
}

static void leave()
{
  if (run.expired) fail("takes too long: an endless loop?");
  af_switch(&run.self->sp, run.scheduler);
}

void yield() { leave(); }

static char poison() { return (char)(run.order == 0 ? 0xff : run.order == 1 ? 0xa5 : 0x7f); }

