#include "transport/backoff.h"

#include <algorithm>

namespace hvdtune {
namespace {

// A wake-up is measured well or badly, as the machine had other work at that moment.
constexpr double kShortestWakeNs = 20'000;
constexpr double kLongestWakeNs = 200'000;

double wake_ns(const HostCosts& costs) {
  return std::clamp(costs.wake_ns, kShortestWakeNs, kLongestWakeNs);
}

}  // namespace

uint64_t caller_spin_ns(const HostCosts& costs) {
  return static_cast<uint64_t>(2 * wake_ns(costs));
}

int spin_rounds(const HostCosts& costs) {
  return static_cast<int>(wake_ns(costs) / std::max(costs.spin_ns, 1.0));
}

int spins_for(int local_size, int processors, const HostCosts& costs) {
  return local_size <= processors ? spin_rounds(costs) : 0;
}

}  // namespace hvdtune
