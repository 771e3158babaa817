// Idle costs nothing, and a pause costs no latency.
#include <sys/resource.h>

#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

uint64_t cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 +
           static_cast<uint64_t>(time.tv_usec) * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// What the process spends while nothing is asked of it.
uint64_t idle_cpu_ns() {
  const uint64_t before = cpu_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return cpu_ns() - before;
}

constexpr uint64_t kLittle = 30'000'000;  // a tenth of one core; a spinning thread takes ten times

}  // namespace

TEST(an_idle_job_uses_no_processor) {
  Job job({.size = 4, .hosts = 2});
  job.each([](Runtime& runtime, int) {
    std::vector<float> values(10, 1.0F);
    allreduce_now(runtime, "once", values);
  });
  CHECK(idle_cpu_ns() < kLittle);
}

TEST(ranks_that_wait_for_a_late_one_use_no_processor) {
  Job job({.size = 3});
  std::vector<float> values(10, 1.0F);
  std::vector<std::vector<float>> others(2, values);
  const Handle one = submit_one(job[0], allreduce_of("late", others[0]));
  const Handle two = submit_one(job[1], allreduce_of("late", others[1]));
  std::jthread waiting([&] { finish(job[0], one); });
  CHECK(idle_cpu_ns() < kLittle);
  allreduce_now(job[2], "late", values);
  finish(job[1], two);
}

TEST(a_job_that_one_rank_has_left_uses_no_processor) {
  for (const int leaver : {0, 1}) {
    Job job({.size = 3});
    std::vector<float> values(10, 1.0F);
    const Handle handle = submit_one(job[2], allreduce_of("never", values));
    job[leaver].shutdown();
    CHECK(failure_of(job[2], handle).code() == ErrorCode::kRankLost);
    CHECK(idle_cpu_ns() < kLittle);
  }
}

TEST(a_job_whose_launcher_went_away_uses_no_processor) {
  Job job({.size = 2});
  job.server().close();
  CHECK(idle_cpu_ns() < kLittle);
}

TEST(a_window_that_still_collects_uses_no_processor) {
  JobOptions options{.size = 2};
  options.setting.cycle_time_ms = 1e9;  // it must not end while it is looked at
  Job job(options);
  std::vector<std::vector<float>> values(2, {1.0F});
  std::vector<Handle> handles;
  for (int rank = 0; rank < 2; ++rank) {
    handles.push_back(submit_one(job[rank], allreduce_of("x", values[static_cast<size_t>(rank)])));
  }
  CHECK(idle_cpu_ns() < kLittle);
  job.each(
      [&](Runtime& runtime, int rank) { finish(runtime, handles[static_cast<size_t>(rank)]); });
}

// With a window of eleven days, a blocked caller that is overlooked once is never served.
TEST(a_caller_that_waits_is_not_made_to_wait_a_window_out) {
  JobOptions options{.size = 3};
  options.setting.cycle_time_ms = 1e9;
  Job job(options);
  job.each([](Runtime& runtime, int rank) {
    std::vector<float> values(10, 1.0F);
    std::vector<float> more(10, 1.0F);
    for (int i = 0; i < 500; ++i) {
      const Handle first = submit_one(runtime, allreduce_of("first", values));
      if ((i + rank) % 3 == 0) std::this_thread::yield();
      const Handle second = submit_one(runtime, allreduce_of("second", more));
      finish(runtime, (i + rank) % 2 == 0 ? first : second);
      finish(runtime, (i + rank) % 2 == 0 ? second : first);
    }
  });
}
