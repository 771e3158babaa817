#include "collective/allreduce/shared_limits.h"

#include <algorithm>
#include <bit>

namespace hvdtune {
namespace {

constexpr double kKiB = 1024;
constexpr size_t kSmallest = size_t{8} << 10;
constexpr size_t kLargest = size_t{1} << 30;
constexpr double kFewestWhole = 8 << 10;
constexpr double kMostWhole = 32 << 10;
constexpr double kSmallestPiece = 64 << 10;
constexpr double kLargestPiece = 256 << 10;

size_t piece_bytes(int local_size, const HostCosts& costs) {
  // The pieces of all ranks and the result, in half of the cache.
  const double fits = costs.cache_bytes / 2 / (local_size + 1);
  return std::bit_floor(static_cast<size_t>(std::clamp(fits, kSmallestPiece, kLargestPiece)));
}

// Where every rank reduces all of it, it reduces the other ranks' shares, too, and spares a
// meeting.
size_t whole_bytes(int local_size, const HostCosts& costs) {
  const double others = local_size - 1;
  const double more_ns = costs.reduce_ns * others * others / local_size;
  const double break_even = 2 * costs.meet_ns / more_ns * kKiB;
  return std::bit_floor(static_cast<size_t>(std::clamp(break_even, kFewestWhole, kMostWhole)));
}

// The payload, what is read of the others and the result, beside each other.
bool fits_cache(size_t bytes, const HostCosts& costs) {
  return 3 * static_cast<double>(bytes) <= costs.cache_bytes;
}

}  // namespace

double arena_ns(size_t bytes, int local_size, const HostCosts& costs) {
  // Every other rank's share is copied into the slot, and its sum out of the result.
  const double copies = 2 * (local_size - 1);
  const double share = static_cast<double>(bytes) / local_size;
  const double ns = fits_cache(bytes, costs) ? costs.copy_ns : costs.far_copy_ns;
  return copies * share / kKiB * ns;
}

double peer_copies_ns(size_t bytes, int local_size, const HostCosts& costs) {
  // A share is read from each other rank, and written to it.
  const double copies = 2 * (local_size - 1);
  const double share = static_cast<double>(bytes) / local_size;
  const double pieces = std::max(1.0, share / static_cast<double>(piece_bytes(local_size, costs)));
  const double ns = fits_cache(bytes, costs) ? costs.peer_copy_ns : costs.far_peer_copy_ns;
  return copies * (share / kKiB * ns + pieces * costs.peer_call_ns);
}

SharedLimits shared_limits(int local_size, const HostCosts& costs) {
  // The largest size up to which no smaller one is copied sooner than packed.
  size_t arena_bytes = 0;
  for (size_t bytes = kSmallest; bytes <= kLargest; bytes *= 2) {
    if (arena_ns(bytes, local_size, costs) > peer_copies_ns(bytes, local_size, costs)) break;
    arena_bytes = bytes;
  }
  SharedLimits limits;
  limits.piece_bytes = piece_bytes(local_size, costs);
  limits.whole_bytes = whole_bytes(local_size, costs);
  limits.arena_bytes =
      arena_bytes < kLargest ? std::max(limits.whole_bytes, arena_bytes) : kNoLimit;
  return limits;
}

}  // namespace hvdtune
