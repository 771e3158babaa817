#include "transport/shm/arena.h"

#include <chrono>
#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

#include "check.h"

using namespace hvdtune;

namespace {

constexpr size_t kSlotBytes = size_t{64} << 10;

std::vector<Arena> make_arenas(int ranks) {
  std::vector<int> world(static_cast<size_t>(ranks));
  std::iota(world.begin(), world.end(), 10);
  std::vector<Arena> arenas;
  arenas.push_back(Arena::create(kSlotBytes, world));
  for (int i = 1; i < ranks; ++i) {
    arenas.push_back(Arena::open(arenas.front().offer(), i, world));
  }
  return arenas;
}

Deadline soon() { return Deadline::in(std::chrono::seconds(50)); }

// In each round every rank writes the round into its slot and, past the barrier, finds it in all.
void meet(std::vector<Arena>& arenas, uint64_t rounds, int spins) {
  const StopSignal stop;
  std::vector<std::jthread> threads;
  for (Arena& arena : arenas) {
    threads.emplace_back([&] {
      for (uint64_t round = 1; round <= rounds; ++round) {
        const int parity = static_cast<int>(round % 2);
        *reinterpret_cast<uint64_t*>(arena.slot(arena.local_rank(), parity)) = round;
        arena.post(round);
        arena.await_all(round, soon(), stop, spins);
        for (int i = 0; i < arena.local_size(); ++i) {
          CHECK_EQ(*reinterpret_cast<uint64_t*>(arena.slot(i, parity)), round);
        }
      }
    });
  }
}

}  // namespace

TEST(two_ranks_meet_a_hundred_thousand_times) {
  std::vector<Arena> arenas = make_arenas(2);
  meet(arenas, 100'000, 200);
}

TEST(four_ranks_meet_without_spinning) {
  std::vector<Arena> arenas = make_arenas(4);
  meet(arenas, 30'000, 0);
}

TEST(three_ranks_meet) {
  std::vector<Arena> arenas = make_arenas(3);
  meet(arenas, 30'000, 50);
}

TEST(slots_and_results_do_not_overlap) {
  std::vector<Arena> arenas = make_arenas(3);
  std::vector<uint8_t*> areas;
  for (const int parity : {0, 1}) {
    for (int i = 0; i < 3; ++i) areas.push_back(arenas[0].slot(i, parity));
    areas.push_back(arenas[0].result(parity));
  }
  uint8_t mark = 1;
  for (uint8_t* area : areas) std::fill_n(area, kSlotBytes, mark++);
  mark = 1;
  for (const uint8_t* area : areas) {
    CHECK_EQ(std::accumulate(area, area + kSlotBytes, size_t{0}), kSlotBytes * mark++);
  }
  arenas[0].post(1);
  const StopSignal stop;
  arenas[1].await(0, 1, soon(), stop, 0);
  CHECK_EQ(arenas[1].result(1)[kSlotBytes - 1], arenas[0].result(1)[kSlotBytes - 1]);
  CHECK_EQ(arenas[2].slot_bytes(), kSlotBytes);
}

TEST(a_raised_stop_signal_ends_the_wait) {
  std::vector<Arena> arenas = make_arenas(2);
  StopSignal stop;
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.raise();
  });
  CHECK_THROWS(ErrorCode::kShutdown, arenas[0].await(1, 1, soon(), stop, 0));
}

TEST(a_deadline_names_the_rank_that_is_behind) {
  std::vector<Arena> arenas = make_arenas(2);
  const StopSignal stop;
  try {
    arenas[0].await_all(1, Deadline::in(std::chrono::milliseconds(30)), stop, 0);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kTimeout);
    CHECK_EQ(error.rank(), 11);
  }
}
