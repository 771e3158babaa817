#include "collective/shared_ways.h"

#include <algorithm>
#include <bit>

namespace hvdtune {
namespace {

// A way is tried again when operations have taken this many times what its last trial took.
constexpr uint64_t kTrialInterval = 100;
// An operation that takes more times as long as the best has waited for another rank.
constexpr uint64_t kLate = 4;
// Operations of a trial, and of one in which the way is slower by far or that has lasted long.
constexpr size_t kTrial = 16;
constexpr size_t kShortTrial = 4;
constexpr uint64_t kHopeless = 3;
constexpr uint64_t kLongTrialNs = 10'000'000;
// Another way is taken when it takes less than this share of the time.
constexpr double kClearlyLess = 0.9;
constexpr uint64_t kMask = 3;

size_t size_index(size_t bytes, size_t sizes) {
  const int width = bytes == 0 ? 0 : std::bit_width(bytes - 1);
  return std::min(static_cast<size_t>(width), sizes - 1);
}

bool is_open(size_t way, bool may_copy_from_peers) {
  return may_copy_from_peers || way != static_cast<size_t>(SharedWay::kPeerCopies);
}

}  // namespace

uint64_t SharedWays::Times::best_ns() const {
  return *std::min_element(took_ns.begin(),
                           took_ns.begin() + static_cast<ptrdiff_t>(std::min(count, kSamples)));
}

std::optional<SharedWay> SharedWays::way(size_t bytes) const {
  const uint64_t found = agreement_ >> 2 * size_index(bytes, kSizes) & kMask;
  if (found == 0) return {};
  return static_cast<SharedWay>(found - 1);
}

void SharedWays::note(size_t bytes, SharedWay way, bool may_copy_from_peers, uint64_t took_ns) {
  const size_t index = size_index(bytes, kSizes);
  Size& size = sizes_[index];
  const bool is_first =
      std::ranges::all_of(size.ways, [](const Times& times) { return times.count == 0; });
  if (is_first) size.best = static_cast<size_t>(way);
  const auto number = static_cast<size_t>(way);
  Times& times = size.ways[number];
  times.took_ns[times.count++ % kSamples] = took_ns;
  const uint64_t worked_ns = std::min(took_ns, kLate * times.best_ns());
  size.busy_ns += worked_ns;
  times.last_ns = size.busy_ns;
  if (size.trial == number) {
    ++size.tried;
    times.spent_ns += worked_ns;
    if (is_trial_over(size)) size.trial.reset();
  }
  const uint64_t next = next_way(size, may_copy_from_peers) + 1;
  proposal_ = (proposal_ & ~(kMask << 2 * index)) | next << 2 * index;
}

bool SharedWays::is_trial_over(const Size& size) {
  const Times& times = size.ways[*size.trial];
  const bool is_hopeless = times.best_ns() > kHopeless * size.ways[size.best].best_ns();
  const bool is_short = is_hopeless || times.spent_ns >= kLongTrialNs;
  return size.tried >= (is_short ? kShortTrial : kTrial);
}

// The best one, or one that is to be tried.
size_t SharedWays::next_way(Size& size, bool may_copy_from_peers) {
  if (size.trial) return *size.trial;
  const size_t before = size.best;
  uint64_t best_ns =
      static_cast<uint64_t>(static_cast<double>(size.ways[before].best_ns()) * kClearlyLess);
  for (size_t way = 0; way < kSharedWays; ++way) {
    if (way == before || !is_open(way, may_copy_from_peers)) continue;
    const Times& times = size.ways[way];
    if (times.count == 0 || size.busy_ns - times.last_ns >= kTrialInterval * times.spent_ns) {
      size.trial = way;
    } else if (times.best_ns() < best_ns) {
      size.best = way;
      best_ns = times.best_ns();
    }
  }
  if (!size.trial) return size.best;
  size.tried = 0;
  size.ways[*size.trial].spent_ns = 0;
  return *size.trial;
}

}  // namespace hvdtune
