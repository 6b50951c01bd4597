/* Waiting for what others do. With AF_WATCHDOG, which first runs of a kernel have, nobody waits for
   more than two seconds of the device's clock: then the kernel is stopped by a trap, so that a hang
   costs an error and no device. */
#if defined(AF_WATCHDOG) && !defined(AF_EMULATED)
#define AF_PATIENCE_NS 2000000000ull
__device__ __forceinline__ unsigned long long af_device_ns()
{ unsigned long long t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }
#define AF_WAIT_WHILE(waiting, pause)                                                        \
  for (const unsigned long long begun = af_device_ns(); waiting;) {                          \
    pause;                                                                                   \
    if (af_device_ns() - begun > AF_PATIENCE_NS) asm volatile("trap;");                      \
  }
#else
#define AF_WAIT_WHILE(waiting, pause) while (waiting) { pause; }
#endif

