/* A whole loop as one job of the thread pool: members of a team claim pieces of one round after
 * another, and who finishes the last piece of a round opens the next. So a round ends with what a
 * barrier is for, and nobody waits for a member that the system does not run, only for pieces that
 * were taken. The ticket is the number of the round, times 2^40, plus what was claimed of it. */
#include <sched.h>
#include <stdatomic.h>

enum { AF_SPINS = 4000 };

typedef struct {
  void (*step)(void **context, int64_t round, int64_t first, int64_t last);
  void **context;
  const int64_t *totals, *chunks; /* of each round of a period */
  int64_t period, rounds;
  _Alignas(64) _Atomic int64_t ticket;
  _Alignas(64) _Atomic int64_t done;
} af_rounds;

static void af_member(void **job, int64_t first, int64_t last)
{
  af_rounds *const own = (af_rounds *)job;
  for (int idle = 0;;) {
    int64_t at = atomic_load(&own->ticket);
    if (at >> 40 >= own->rounds) return;
    const int64_t kind = (at >> 40) % own->period, chunk = own->chunks[kind];
    if ((at & 0xffffffffff) < own->totals[kind]) {
      /* It may be another round by now, of which as much is claimed. */
      at = atomic_fetch_add(&own->ticket, chunk);
      const int64_t round = at >> 40, start = at & 0xffffffffff;
      const int64_t total = round < own->rounds ? own->totals[round % own->period] : 0;
      if (start >= total) continue;
      const int64_t end = start + chunk < total ? start + chunk : total;
      own->step(own->context, round, start, end);
      if (atomic_fetch_add(&own->done, end - start) + end - start == total) {
        atomic_store(&own->done, 0);
        atomic_store(&own->ticket, (round + 1) << 40);
      }
      idle = 0;
    } else if (idle++ < AF_SPINS) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      sched_yield();
    }
  }
}
