// The pause of a spinning wait between two checks, and how many of them there are before the wait
// sleeps. A wait that spins does not yield: to a thread that computes, or spins, the scheduler
// would give milliseconds, and whoever yields stays on its processor while another one is idle.
// Whoever sleeps is moved there when it wakes up.
#pragma once

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

// How long a caller that waits for other ranks spins before it sleeps: about what it takes to wake
// up two of them one after the other. Pure.
uint64_t caller_spin_ns(const HostCosts& costs);
// Rounds of a wait that are worth spinning for: as long as it takes to be woken up. Pure.
int spin_rounds(const HostCosts& costs);
// The same, and none when the ranks of this host have no processor each of those that they may all
// run on together.
int spins_for(int local_size, int processors, const HostCosts& costs);

}  // namespace hvdtune
