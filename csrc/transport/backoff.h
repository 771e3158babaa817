// The pause of a spinning wait between two checks.
#pragma once

#include <sched.h>

namespace hvdtune {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The given round of a spinning wait: now and then the processor goes to whoever wants it, who may
// be the one that is waited for.
inline void spin_backoff(int round) {
  if (round % 16 == 15) {
    sched_yield();
  } else {
    cpu_pause();
  }
}

// Rounds of a wait that are worth spinning for: none when the ranks of this host have no core each.
int spins_for(int local_size);

}  // namespace hvdtune
