// Which way through a host's memory a payload takes, by its size.
#pragma once

#include <cstddef>
#include <limits>

#include "transport/host_costs.h"

namespace hvdtune {

// What to do with a payload that does not lie in the pool; one that does is reduced in place unless
// it is whole.
struct SharedLimits {
  // Up to here every rank packs its payload into its slot and reduces all of them: one meeting.
  size_t whole_bytes = 0;
  // Up to here it goes through the arena; above, the kernel copies it from process to process,
  // which has a price per call and per page. As long as nothing else was measured: see SharedWays.
  size_t arena_bytes = 0;
  // So much is copied between processes at a time: the pieces of all ranks stay in the cache.
  size_t piece_bytes = size_t{128} << 10;

  bool operator==(const SharedLimits&) const = default;
};

inline constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// For `local_size` ranks of a host. Pure: by the estimates below.
SharedLimits shared_limits(int local_size, const HostCosts& costs);

// What an allreduce of `bytes` costs each rank, in nanoseconds, apart from what its ways have in
// common: through the arena, and by copies from process to process. Pure.
double arena_ns(size_t bytes, int local_size, const HostCosts& costs);
double peer_copies_ns(size_t bytes, int local_size, const HostCosts& costs);

}  // namespace hvdtune
