#include "runtime/steering/step_switch.h"

#include <atomic>
#include <random>
#include <thread>

#include "check.h"
#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

std::vector<ScriptValue> value(int number) { return {{"script.way", std::to_string(number)}}; }

int value_of(const std::vector<ScriptValue>& values) {
  return values.empty() ? 0 : std::stoi(values[0].value);
}

}  // namespace

TEST(values_change_at_the_boundary_that_was_named) {
  StepSwitch steps({});
  steps.pass();
  CHECK_EQ(steps.hold(), 1U);
  steps.set(5, value(1), 3);
  steps.set(6, value(2), 4);
  steps.pass();
  CHECK_EQ(value_of(steps.values()), 0);
  steps.pass();
  CHECK_EQ(value_of(steps.values()), 1);
  CHECK_EQ(steps.version(), 5U);
  steps.pass();
  CHECK_EQ(value_of(steps.values()), 2);
}

TEST(a_script_waits_where_it_does_not_know_its_values) {
  for (const bool ends : {false, true}) {
    StepSwitch steps({});
    CHECK_EQ(steps.hold(), 0U);
    steps.pass();
    std::atomic<bool> passed = false;
    std::jthread script([&] {
      steps.pass();
      passed = true;
    });
    CHECK(!passed);
    if (ends) {
      steps.abandon();
    } else {
      steps.set(1, value(1), 2);
    }
    script.join();
    CHECK_EQ(value_of(steps.values()), ends ? 0 : 1);
    steps.pass();
  }
}

// Ranks whose scripts are at different places, with and without collectives between the steps.
TEST(no_step_has_two_values) {
  constexpr int kSteps = 1500;
  for (const int fanout : {1, 16}) {
    for (const int apart : {1, 4}) {
      Job job({.size = 3, .control_fanout = fanout});
      std::vector<std::vector<int>> seen(3);
      job.each([&](Runtime& runtime, int rank) {
        std::minstd_rand random(static_cast<unsigned>(rank));
        for (int i = 0; i < kSteps; ++i) {
          seen[static_cast<size_t>(rank)].push_back(value_of(runtime.script_values()));
          if (rank == 0 && i % 3 == 0) {
            Setting setting;
            setting.cycle_time_ms = 0;
            setting.script = value(i);
            job.server().propose({static_cast<uint32_t>(i + 1), setting});
          }
          std::vector<float> values(4, 1.0F);
          if (i % apart == 0) allreduce_now(runtime, "w", values);
          if (random() % 16 == 0) std::this_thread::yield();
          runtime.mark_step();
        }
      });
      CHECK(seen[0] == seen[1]);
      CHECK(seen[0] == seen[2]);
      CHECK(std::ranges::any_of(seen[0], [](int each) { return each > kSteps / 4; }));
      job.end();
    }
  }
}

TEST(a_script_does_not_wait_for_ranks_that_have_left) {
  Job job({.size = 2});
  job.each([&](Runtime& runtime, int rank) {
    for (int i = 0; i < 40; ++i) {
      Setting setting;
      setting.script = value(i);
      if (rank == 0) runtime.propose(setting);
      std::vector<float> values(4, 1.0F);
      if (i < 20) allreduce_now(runtime, "w", values);
      if (i == 20 && rank == 1) return runtime.shutdown();
      runtime.mark_step();
    }
  });
}

TEST(the_launcher_hears_of_the_scripts_knobs) {
  Job job({.size = 2});
  job.each([](Runtime& runtime, int rank) { runtime.declare(rank == 0 ? "[1]" : "[2]"); });
  while (const auto event = job.server().next_event(std::chrono::seconds(60))) {
    if (const auto* declared = std::get_if<JobDeclared>(&*event)) {
      CHECK_EQ(declared->knobs, "[1]");
      break;
    }
  }
}
