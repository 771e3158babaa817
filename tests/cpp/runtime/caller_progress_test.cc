// Callers that take the cycle thread's turns, among others that only submit and look.
#include <atomic>
#include <random>
#include <thread>

#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kSteps = 400;

void pause_sometimes(std::mt19937& random) {
  // Around the length of a rest, so that calls fall into, between and after them.
  const auto us = std::uniform_int_distribution<int>(0, 9)(random) == 0
                      ? std::uniform_int_distribution<int>(1, 700)(random)
                      : 0;
  if (us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

void one_allreduce(Runtime& runtime, const std::string& name, bool waits) {
  std::vector<float> values = {1.0F, 2.0F};
  const Handle handle = submit_one(runtime, allreduce_of(name, values));
  if (waits) {
    while (!runtime.wait(handle, std::chrono::milliseconds(200))) {
    }
  } else {
    while (!runtime.poll(handle)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  runtime.release(handle);
  CHECK_EQ(values[1], 2.0F * static_cast<float>(runtime.topology().size));
}

// Each rank with `callers` threads, of which some wait and some look now and then.
void train(JobOptions options, int callers) {
  Job job(std::move(options));
  job.each([&](Runtime& runtime, int rank) {
    std::vector<std::jthread> threads;
    for (int caller = 0; caller < callers; ++caller) {
      threads.emplace_back([&runtime, rank, caller] {
        std::mt19937 random(static_cast<unsigned>(100 * rank + caller));
        const std::string name = "tensor." + std::to_string(caller);
        for (int step = 0; step < kSteps; ++step) {
          one_allreduce(runtime, name, (step + caller) % 3 != 0);
          pause_sometimes(random);
        }
      });
    }
  });
}

}  // namespace

TEST(one_caller_per_rank) {
  train({.size = 1}, 1);
  train({.size = 2}, 1);
  train({.size = 2, .hosts = 2}, 1);
}

TEST(many_callers_per_rank) {
  train({.size = 1}, 4);
  train({.size = 2}, 4);
  train({.size = 4, .hosts = 4, .control_fanout = 1}, 2);
}

TEST(windows_that_nobody_waits_for_end_by_themselves) {
  JobOptions options{.size = 2};
  options.setting.cycle_time_ms = 3.0;
  train(options, 3);
}

TEST(work_submitted_after_a_wait_needs_no_other_wait) {
  Job job({.size = 2});
  job.each([](Runtime& runtime, int) {
    for (int step = 0; step < kSteps; ++step) {
      one_allreduce(runtime, "waited", true);
      one_allreduce(runtime, "polled", false);
    }
  });
}

TEST(settings_are_adopted_while_callers_take_turns) {
  for (const int size : {1, 2}) {
    Job job({.size = size});
    job.each([](Runtime& runtime, int rank) {
      Setting setting = runtime.setting();
      uint32_t version = 0;
      for (int step = 0; step < kSteps; ++step) {
        if (rank == 0 && step % 10 == 0 && step < kSteps - 10) {
          setting.cycle_time_ms = 0.1 * (step % 7);
          version = runtime.propose(setting);
        }
        one_allreduce(runtime, "tensor", true);
        runtime.mark_step();
      }
      if (rank == 0) CHECK_EQ(runtime.version(), version);
    });
  }
}

TEST(a_rank_that_leaves_ends_what_callers_wait_for) {
  for (int round = 0; round < 10; ++round) {
    Job job({.size = 2});
    job.each([&](Runtime& runtime, int rank) {
      for (int step = 0; step < 20; ++step) one_allreduce(runtime, "tensor", true);
      if (rank == round % 2) return runtime.shutdown();
      std::vector<float> values = {1.0F};
      const auto waits_in_vain = [&] {
        const Handle handle = submit_one(runtime, allreduce_of("alone", values));
        while (!runtime.wait(handle, std::chrono::milliseconds(200))) {
        }
      };
      CHECK_THROWS(ErrorCode::kRankLost, waits_in_vain());
    });
  }
}
