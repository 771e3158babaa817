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

std::vector<int> peers_of(const Arena& arena) {
  std::vector<int> peers;
  for (int i = 0; i < arena.local_size(); ++i) {
    if (i != arena.local_rank()) peers.push_back(i);
  }
  return peers;
}

// In each round every rank writes the round into its slot and, past the barrier, finds it in all.
void meet(std::vector<Arena>& arenas, uint64_t rounds, int spins) {
  const StopSignal stop;
  std::vector<std::jthread> threads;
  for (Arena& arena : arenas) {
    threads.emplace_back([&] {
      for (uint64_t round = 1; round <= rounds; ++round) {
        const int buffer_index = static_cast<int>(round % 2);
        *reinterpret_cast<uint64_t*>(arena.slot(arena.local_rank(), buffer_index)) = round;
        for (const int peer : peers_of(arena)) arena.post(peer);
        for (const int peer : peers_of(arena)) arena.await(peer, {soon(), stop, spins});
        for (int i = 0; i < arena.local_size(); ++i) {
          CHECK_EQ(*reinterpret_cast<uint64_t*>(arena.slot(i, buffer_index)), round);
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
  for (const int buffer_index : {0, 1}) {
    for (int i = 0; i < 3; ++i) areas.push_back(arenas[0].slot(i, buffer_index));
    for (int i = 0; i < 3; ++i) areas.push_back(arenas[0].result(i, buffer_index));
  }
  uint8_t mark = 1;
  for (uint8_t* area : areas) std::fill_n(area, kSlotBytes, mark++);
  mark = 1;
  for (const uint8_t* area : areas) {
    CHECK_EQ(std::accumulate(area, area + kSlotBytes, size_t{0}), kSlotBytes * mark++);
  }
  const StopSignal stop;
  arenas[0].post(1);
  arenas[1].post(0);
  arenas[1].await(0, {soon(), stop, 0});
  CHECK_EQ(arenas[1].result(0, 1)[kSlotBytes - 1], arenas[0].result(0, 1)[kSlotBytes - 1]);
  CHECK_EQ(arenas[2].slot_bytes(), kSlotBytes);
}

// Local ranks 0 and 1 meet; then 0 meets 2 with the same memory, which 1 may still be reading.
TEST(memory_is_not_reused_before_its_last_readers_have_left) {
  std::vector<Arena> arenas = make_arenas(3);
  const StopSignal stop;
  const int one = 1;
  const int two = 2;
  const uint64_t first = arenas[0].new_subset();
  const uint64_t second = arenas[0].new_subset();
  arenas[0].enter(first, {&one, 1}, {soon(), stop, 0});
  arenas[0].post(1);
  arenas[1].post(0);
  arenas[0].await(1, {soon(), stop, 0});
  arenas[0].enter(first, {&one, 1}, {soon(), stop, 0});  // no reason to wait within a subset
  const Deadline moment = Deadline::in(std::chrono::milliseconds(30));
  CHECK_THROWS(ErrorCode::kTimeout, arenas[0].enter(second, {&two, 1}, {moment, stop, 0}));
  arenas[1].leave(0);
  arenas[0].enter(second, {&two, 1}, {soon(), stop, 0});
}

TEST(a_raised_stop_signal_ends_the_wait) {
  std::vector<Arena> arenas = make_arenas(2);
  StopSignal stop;
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop.raise();
  });
  arenas[0].post(1);
  CHECK_THROWS(ErrorCode::kShutdown, arenas[0].await(1, {soon(), stop, 0}));
}

TEST(a_deadline_names_the_rank_that_is_behind) {
  std::vector<Arena> arenas = make_arenas(2);
  const StopSignal stop;
  try {
    arenas[0].post(1);
    arenas[0].await(1, {Deadline::in(std::chrono::milliseconds(30)), stop, 0});
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kTimeout);
    CHECK_EQ(error.rank(), 11);
  }
}
