#include "transport/shm/arena.h"

#include <sched.h>

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

namespace {

cpu_set_t allowed_processors() {
  cpu_set_t set;
  CHECK_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

}  // namespace

// Two threads bound to one processor say where they are; set free, the second one goes away.
TEST(a_rank_that_waits_on_the_processor_of_another_moves_to_a_free_one) {
  const cpu_set_t usual = allowed_processors();
  std::vector<Arena> arenas = make_arenas(2);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const int here = sched_getcpu();
  arenas[0].move_apart();
  arenas[1].move_apart();  // there is no other one for it
  CHECK_EQ(sched_getcpu(), here);
  cpu_set_t now = allowed_processors();
  CHECK(CPU_EQUAL(&now, &one));
  std::jthread first([&] { arenas[0].move_apart(); });
  first.join();
  CHECK_EQ(sched_setaffinity(0, sizeof usual, &usual), 0);
  // As long as it is still there, which is for the scheduler to decide.
  const bool is_here = sched_getcpu() == here;
  arenas[1].move_apart();
  if (CPU_COUNT(&usual) > 1 && is_here) CHECK(sched_getcpu() != here);
  now = allowed_processors();
  CHECK(CPU_EQUAL(&now, &usual));
}

namespace {

// Whether the 16th meeting in a row on one processor moves a thread that is bound there no longer.
bool is_parted(const cpu_set_t& usual, const cpu_set_t& one) {
  std::vector<Arena> arenas = make_arenas(2);
  const StopSignal stop;
  const auto meet = [&](int times) {
    for (int i = 0; i < times; ++i) {
      arenas[0].post(1);
      arenas[1].post(0);
      arenas[1].await(0, {soon(), stop, 1});
    }
  };
  CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const int here = sched_getcpu();
  meet(31);  // at the 16th there is no other one for it
  CHECK_EQ(sched_getcpu(), here);
  CHECK_EQ(sched_setaffinity(0, sizeof usual, &usual), 0);
  meet(1);
  return sched_getcpu() != here;
}

}  // namespace

TEST(ranks_that_meet_on_one_processor_again_and_again_are_parted) {
  const cpu_set_t usual = allowed_processors();
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
  // The scheduler may move the thread, too, in between and back.
  bool parted = false;
  for (int attempt = 0; attempt < 20 && !parted; ++attempt) parted = is_parted(usual, one);
  CHECK(parted || CPU_COUNT(&usual) == 1);
  const cpu_set_t now = allowed_processors();
  CHECK(CPU_EQUAL(&now, &usual));
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
