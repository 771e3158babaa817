#include "transport/backoff.h"

namespace hvdtune {

int spins_for(int local_size) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 0;
  return local_size <= CPU_COUNT(&cpus) ? 300 : 0;
}

}  // namespace hvdtune
