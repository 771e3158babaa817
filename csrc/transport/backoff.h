// The pause of a spinning wait between two checks.
#pragma once

#include <sched.h>

#include <cstdint>

#include "transport/host_costs.h"

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

// How long a caller that waits for other ranks spins before it sleeps: about what it takes to wake
// up two of them one after the other. Pure.
uint64_t caller_spin_ns(const HostCosts& costs);
// Rounds of a wait that are worth spinning for: as long as it takes to be woken up. Pure.
int spin_rounds(const HostCosts& costs);
// The same, and none when the ranks of this host have no core each.
int spins_for(int local_size, const HostCosts& costs);

}  // namespace hvdtune
