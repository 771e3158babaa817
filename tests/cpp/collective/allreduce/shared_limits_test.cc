// Which way through a host's memory is taken, by what the host's ways cost.
#include "collective/allreduce/shared_limits.h"

#include "check.h"

using namespace hvdtune;

namespace {

constexpr size_t kKiB = 1024;

// Of the size of what virtual machines of two processors show. On Intel's the kernel copies between
// processes for less than a copy costs.
constexpr HostCosts kIntel = {.cache_bytes = 2 << 20,
                              .copy_ns = 70,
                              .far_copy_ns = 81,
                              .reduce_ns = 54,
                              .peer_call_ns = 550,
                              .peer_copy_ns = 53,
                              .far_peer_copy_ns = 55,
                              .meet_ns = 110,
                              .wake_ns = 28'000,
                              .spin_ns = 12};
// As on AMD's, where it asks a high price for each call and each page.
constexpr HostCosts kDearCalls = {.cache_bytes = 512 << 10,
                                  .copy_ns = 60,
                                  .far_copy_ns = 90,
                                  .reduce_ns = 40,
                                  .peer_call_ns = 3000,
                                  .peer_copy_ns = 170,
                                  .far_peer_copy_ns = 200,
                                  .meet_ns = 110,
                                  .wake_ns = 120'000,
                                  .spin_ns = 10};
// Calls are dear, but what they copy is not.
constexpr HostCosts kDearCallsOnly = {.cache_bytes = 1 << 20,
                                      .copy_ns = 60,
                                      .far_copy_ns = 120,
                                      .reduce_ns = 40,
                                      .peer_call_ns = 4000,
                                      .peer_copy_ns = 60,
                                      .far_peer_copy_ns = 110,
                                      .meet_ns = 110,
                                      .wake_ns = 80'000,
                                      .spin_ns = 10};

}  // namespace

TEST(examples_of_limits) {
  struct Example {
    HostCosts costs;
    int ranks;
    SharedLimits expected;
  };
  const Example table[] = {
      {kIntel, 2, {8 * kKiB, 64 * kKiB, 256 * kKiB}},
      {kIntel, 4, {8 * kKiB, 128 * kKiB, 128 * kKiB}},
      {kIntel, 8, {8 * kKiB, 256 * kKiB, 64 * kKiB}},
      {kDearCalls, 2, {8 * kKiB, kNoLimit, 64 * kKiB}},
      {kDearCalls, 4, {8 * kKiB, kNoLimit, 64 * kKiB}},
      {kDearCallsOnly, 2, {8 * kKiB, kNoLimit, 128 * kKiB}},
      {kDearCallsOnly, 4, {8 * kKiB, kNoLimit, 64 * kKiB}},
  };
  for (const Example& example : table) {
    CHECK(shared_limits(example.ranks, example.costs) == example.expected);
  }
}

TEST(limits_follow_each_other_on_every_host) {
  for (const HostCosts& costs : {HostCosts{}, kIntel, kDearCalls, kDearCallsOnly}) {
    for (const int ranks : {2, 3, 4, 16, 64}) {
      const SharedLimits limits = shared_limits(ranks, costs);
      CHECK(limits.whole_bytes >= 8 * kKiB);
      CHECK(limits.whole_bytes <= limits.arena_bytes);
      CHECK(limits.piece_bytes >= 64 * kKiB);
      CHECK(limits.piece_bytes <= 256 * kKiB);
      CHECK(limits == shared_limits(ranks, costs));
    }
  }
}

TEST(the_dearer_copies_between_processes_are_the_fewer_sizes_are_copied) {
  for (const int ranks : {2, 4}) {
    HostCosts costs = kIntel;
    size_t last = 0;
    for (int i = 0; i < 8; ++i) {
      const size_t arena_bytes = shared_limits(ranks, costs).arena_bytes;
      CHECK(arena_bytes >= last);
      last = arena_bytes;
      costs.peer_call_ns *= 2;
      costs.peer_copy_ns *= 2;
      costs.far_peer_copy_ns *= 2;
    }
    CHECK_EQ(last, kNoLimit);
  }
}
