/* Threads for kernels. A call hands out the iterations of a kernel in chunks; whoever is running
 * takes the next one, the caller included. So a worker that the system does not run costs nothing:
 * the caller does the work itself and waits only for chunks already taken. (A barrier that waits
 * for every thread of a team costs a scheduler's time slice whenever two share a core.)
 *
 * A woken thread is often put on the core that woke it, where it waits for the caller to finish; so
 * each worker is kept on a core of its own, which is never the caller's.
 *
 * To wake a worker takes longer than most kernels (50 us and more on a virtual machine). So it stays
 * awake for a while after a job: while kernels of one thread run, and from one call to the next. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef void (*af_task)(void **args, int64_t first, int64_t last);

enum { SPINS = 4000, CHUNKS_PER_THREAD = 8, MAX_WORKERS = 255 };
/* How long a worker stays awake without a job, and how often it looks for one between two looks at
 * the clock. */
enum { AWAKE_NS = 300000, LOOKS = 64 };

static struct {
  af_task task;
  void **args;
  int64_t total, chunk;
  _Alignas(64) _Atomic int64_t next;
  _Alignas(64) _Atomic uint32_t generation; /* odd while a job is open */
  _Alignas(64) _Atomic int inside;          /* workers that may touch the job */
  _Atomic int asleep, wanted;
} job;

static struct {
  _Atomic pid_t thread;
  int core;
} seats[MAX_WORKERS];

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static int workers;
static int settled = -1, seated; /* the caller's core that the seats were chosen for */
static pid_t owner;

static void rest(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

static void take_chunks(void)
{
  for (;;) {
    const int64_t first = atomic_fetch_add(&job.next, job.chunk);
    if (first >= job.total) return;
    const int64_t last = first + job.chunk;
    job.task(job.args, first, last < job.total ? last : job.total);
  }
}

static int64_t clock_ns(void)
{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint32_t await_job(uint32_t seen)
{
  for (;;) {
    const int64_t until = clock_ns() + AWAKE_NS;
    do {
      for (int i = 0; i < LOOKS; i++) {
        const uint32_t now = atomic_load(&job.generation);
        if (now != seen && (now & 1)) return now;
        rest();
      }
    } while (clock_ns() < until);
    const uint32_t now = atomic_load(&job.generation);
    if (now != seen && (now & 1)) return now;
    atomic_fetch_add(&job.asleep, 1);
    syscall(SYS_futex, &job.generation, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    atomic_fetch_sub(&job.asleep, 1);
  }
}

static void *work(void *number)
{
  uint32_t seen = 0;
  atomic_store(&seats[(intptr_t)number].thread, (pid_t)syscall(SYS_gettid));
  for (;;) {
    seen = await_job(seen);
    atomic_fetch_add(&job.inside, 1);
    /* Entered before looking again: the caller closes the job first and then waits for us. */
    if (atomic_load(&job.generation) == seen && (intptr_t)number < atomic_load(&job.wanted))
      take_chunks();
    atomic_fetch_sub(&job.inside, 1);
  }
  return NULL;
}

static void grow(int wanted)
{
  if (owner != getpid()) { /* threads do not survive a fork */
    owner = getpid();
    workers = 0;
    settled = -1;
    atomic_store(&job.asleep, 0);
    atomic_store(&job.inside, 0);
  }
  for (; workers < wanted && workers < MAX_WORKERS; workers++) {
    pthread_t thread;
    settled = -1;
    seats[workers].core = -1;
    atomic_store(&seats[workers].thread, 0);
    if (pthread_create(&thread, NULL, work, (void *)(intptr_t)workers) != 0) return;
    pthread_detach(thread);
  }
}

/* Worker i sits on the i-th usable core that is not the caller's, where there are enough. */
static void seat(int wanted)
{
  cpu_set_t usable, mine;
  const int here = sched_getcpu();
  if (here == settled && seated >= wanted) return;
  if (here < 0 || sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int complete = 1;
  for (int i = 0, core = -1; i < wanted && i < workers; i++) {
    do core++;
    while (core < CPU_SETSIZE && (!CPU_ISSET(core, &usable) || core == here));
    const pid_t thread = atomic_load(&seats[i].thread);
    if (core == CPU_SETSIZE) return;
    if (thread == 0) complete = 0;
    if (thread == 0 || seats[i].core == core) continue;
    CPU_ZERO(&mine);
    CPU_SET(core, &mine);
    if (sched_setaffinity(thread, sizeof mine, &mine) == 0) seats[i].core = core;
  }
  settled = complete ? here : -1;
  seated = wanted;
}

/* task(args, first, last) over 0 <= first < last <= total by up to `threads` threads. */
void af_parallel(af_task task, void **args, int64_t total, int threads)
{
  if (threads <= 1 || total <= 1 || pthread_mutex_trylock(&busy) != 0) {
    task(args, 0, total);
    return;
  }
  grow(threads - 1);
  seat(threads - 1);
  const int64_t chunk = total / ((int64_t)threads * CHUNKS_PER_THREAD);
  job.task = task;
  job.args = args;
  job.total = total;
  job.chunk = chunk > 0 ? chunk : 1;
  atomic_store(&job.next, 0);
  atomic_store(&job.wanted, threads - 1);
  atomic_fetch_add(&job.generation, 1);
  if (atomic_load(&job.asleep) > 0)
    syscall(SYS_futex, &job.generation, FUTEX_WAKE_PRIVATE, threads - 1, NULL, NULL, 0);
  take_chunks();
  atomic_fetch_add(&job.generation, 1);
  for (int i = 0; atomic_load(&job.inside) > 0; i++) {
    if (i < SPINS) rest();
    else sched_yield();
  }
  pthread_mutex_unlock(&busy);
}
