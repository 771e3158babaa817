// What it costs a host to move bytes between the processes on it, and to wake them.
//
// Ways are chosen by these figures, so the ranks of a host use the same ones: local rank 0
// publishes them in the arena. Between hosts they may differ, so no choice that ranks of several
// hosts must make alike depends on them; and no result ever does.
#pragma once

#include <array>
#include <string_view>

namespace hvdtune {

// The defaults serve where nothing was measured: a 2-core virtual machine of Intel's.
struct HostCosts {
  double cache_bytes = 2 << 20;  // of one processor's own cache
  // A copy into a slot that another rank reads, or out of the common result, for each KiB, while
  // all ranks do that: of payloads within that cache, and of larger ones.
  double copy_ns = 70;
  double far_copy_ns = 90;
  // The sum of two contributions, for each KiB of the result, within the cache.
  double reduce_ns = 50;
  // A copy from process to process by the kernel: for each call, and for each KiB as above.
  double peer_call_ns = 600;
  double peer_copy_ns = 50;
  double far_peer_copy_ns = 60;
  // From the moment a thread does something until one that spins for it, or sleeps, goes on.
  double meet_ns = 130;
  double wake_ns = 30'000;
  double spin_ns = 15;  // one round of a spinning wait

  bool operator==(const HostCosts&) const = default;
};

struct HostCostField {
  std::string_view name;
  double HostCosts::* value;
};

// Every field, in order.
inline constexpr std::array<HostCostField, 10> kHostCostFields = {{
    {"cache_bytes", &HostCosts::cache_bytes},
    {"copy_ns", &HostCosts::copy_ns},
    {"far_copy_ns", &HostCosts::far_copy_ns},
    {"reduce_ns", &HostCosts::reduce_ns},
    {"peer_call_ns", &HostCosts::peer_call_ns},
    {"peer_copy_ns", &HostCosts::peer_copy_ns},
    {"far_peer_copy_ns", &HostCosts::far_peer_copy_ns},
    {"meet_ns", &HostCosts::meet_ns},
    {"wake_ns", &HostCosts::wake_ns},
    {"spin_ns", &HostCosts::spin_ns},
}};
static_assert(sizeof(HostCosts) == sizeof(double) * kHostCostFields.size());

}  // namespace hvdtune
