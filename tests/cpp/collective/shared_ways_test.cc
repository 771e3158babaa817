#include "collective/shared_ways.h"

#include <array>

#include "check.h"

using namespace hvdtune;

namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr uint64_t kUs = 1000;

// A host on which each way takes its time, and a set whose ranks agree at once.
struct Host {
  std::array<uint64_t, kSharedWays> took_ns;
  bool may_copy_from_peers = true;
  SharedWays ways{};
  std::array<uint64_t, kSharedWays> spent_ns{};

  SharedWay operate(size_t bytes) {
    const SharedWay way = ways.way(bytes).value_or(SharedWay::kArena);
    const auto index = static_cast<size_t>(way);
    spent_ns[index] += took_ns[index];
    ways.note(bytes, way, may_copy_from_peers, took_ns[index]);
    ways.agree(ways.proposal());
    return way;
  }
  // The share of the time that goes to this way.
  double share_of(SharedWay way, size_t bytes, int operations) {
    spent_ns = {};
    for (int i = 0; i < operations; ++i) operate(bytes);
    uint64_t all_ns = 0;
    for (const uint64_t ns : spent_ns) all_ns += ns;
    return static_cast<double>(spent_ns[static_cast<size_t>(way)]) / static_cast<double>(all_ns);
  }
};

}  // namespace

TEST(nothing_is_decided_before_anything_was_measured) {
  CHECK(!SharedWays().way(kMiB));
  CHECK_EQ(SharedWays().proposal(), 0U);
}

TEST(the_fastest_way_has_nearly_all_of_the_time) {
  Host host{{200 * kUs, 300 * kUs}};
  CHECK(host.share_of(SharedWay::kArena, kMiB, 20'000) > 0.97);
  host.took_ns = {2000 * kUs, 280 * kUs};
  CHECK(host.share_of(SharedWay::kArena, kMiB, 20'000) < 0.03);
  CHECK(host.share_of(SharedWay::kPeerCopies, kMiB, 20'000) > 0.97);
}

TEST(a_change_is_noticed_within_a_few_operations) {
  Host host{{200 * kUs, 300 * kUs}};
  for (int i = 0; i < 1000; ++i) host.operate(kMiB);
  host.took_ns[0] = 2000 * kUs;
  for (int i = 0; i < 10; ++i) host.operate(kMiB);
  CHECK(host.share_of(SharedWay::kPeerCopies, kMiB, 50) > 0.8);
}

TEST(one_operation_that_took_long_changes_nothing) {
  Host host{{200 * kUs, 400 * kUs}};
  for (int i = 0; i < 100; ++i) host.operate(kMiB);
  CHECK(host.operate(kMiB) == SharedWay::kArena);
  host.took_ns[0] = 9000 * kUs;
  CHECK(host.operate(kMiB) == SharedWay::kArena);
  host.took_ns[0] = 200 * kUs;
  CHECK(host.operate(kMiB) == SharedWay::kArena);
}

TEST(ranks_that_come_late_do_not_bring_trials_about) {
  Host host{{200 * kUs, 300 * kUs}};
  for (int i = 0; i < 100; ++i) host.operate(kMiB);
  int tried = 0;
  for (int i = 0; i < 2000; ++i) {
    if (i % 4 == 0) {  // the others were still computing
      host.took_ns[0] += 100'000 * kUs;
      host.took_ns[1] += 100'000 * kUs;
    }
    if (host.operate(kMiB) == SharedWay::kPeerCopies) ++tried;
    host.took_ns = {200 * kUs, 300 * kUs};
  }
  CHECK(tried < 100);
}

TEST(a_trial_is_long_enough_for_a_way_to_become_fast) {
  // At first memory is in no cache.
  Host host{{200 * kUs, 400 * kUs}};
  int copied = 0;
  for (int i = 0; i < 100; ++i) {
    if (host.operate(kMiB) == SharedWay::kPeerCopies) ++copied;
    if (copied == 10) host.took_ns[static_cast<size_t>(SharedWay::kPeerCopies)] = 100 * kUs;
  }
  CHECK(copied > 50);
}

TEST(sizes_are_apart) {
  Host host{{200 * kUs, 300 * kUs}};
  for (int i = 0; i < 10; ++i) host.operate(kMiB);
  CHECK(host.ways.way(kMiB));
  CHECK(host.ways.way(kMiB / 2 + 1));
  CHECK(!host.ways.way(kMiB / 2));
  CHECK(!host.ways.way(kMiB + 1));
  CHECK(!host.ways.way(size_t{1} << 40));
}

TEST(a_way_that_is_closed_is_never_tried) {
  Host host{{200 * kUs, 10 * kUs}, false};
  for (int i = 0; i < 1000; ++i) CHECK(host.operate(kMiB) == SharedWay::kArena);
}
