// Settings that change under way, and what the launcher hears of steps.
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// Sums whose bits depend on the order of additions.
std::vector<float> awkward(int rank, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = std::ldexp(1.0F + static_cast<float>(i % 97) / 97.0F,
                           (rank * 7 + static_cast<int>(i % 13)) % 23 - 11);
  }
  return values;
}

std::vector<Setting> various_settings() {
  std::vector<Setting> settings(6);
  settings[1].fusion_threshold_bytes = 0;
  settings[2].cycle_time_ms = 0;
  settings[2].chunk_bytes = 65536;
  settings[3].hierarchical_allreduce = true;
  settings[3].chunk_bytes = 4 << 20;
  settings[4].cache_enabled = false;
  settings[4].fusion_threshold_bytes = 1000;
  settings[5].hierarchical_allreduce = true;
  settings[5].chunk_bytes = 100'000;
  return settings;
}

std::vector<std::vector<float>> step(Runtime& runtime, int rank) {
  std::vector<std::vector<float>> values = {awkward(rank, 3), awkward(rank, 50'000),
                                            awkward(rank, 1), awkward(rank, 131'073)};
  std::vector<Draft> group;
  for (size_t i = 0; i < values.size(); ++i) {
    group.push_back(allreduce_of("w" + std::to_string(i), values[i], ReduceOp::kAverage));
  }
  for (const Handle handle : submit_all(runtime, group)) finish(runtime, handle);
  runtime.mark_step();
  return values;
}

template <typename Event>
Event await_event(JobServer& server) {
  while (const auto event = server.next_event(std::chrono::seconds(60))) {
    if (const auto* wanted = std::get_if<Event>(&*event)) return *wanted;
  }
  CHECK(false);
  return {};
}

}  // namespace

TEST(every_rank_adopts_a_proposal_and_the_bits_stay) {
  for (const int hosts : {1, 2, 4}) {
    Job job({.size = 4, .hosts = hosts});
    const std::vector<Setting> settings = various_settings();
    std::vector<std::vector<float>> expected;
    for (uint32_t version = 0; version < settings.size(); ++version) {
      if (version > 0) job.server().propose({version, settings[version]});
      bool adopted = version == 0;
      for (int turn = 0; turn < 50 && !adopted; ++turn) {
        job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
        adopted = job[3].version() == version;
      }
      CHECK(adopted);
      job.each([&](Runtime& runtime, int rank) {
        const auto values = step(runtime, rank);
        CHECK_EQ(runtime.version(), version);
        CHECK(runtime.setting() == settings[version]);
        if (version == 0 && rank == 0) expected = values;
        if (version > 0) CHECK(values == expected);
      });
    }
    job.end();
  }
}

TEST(the_launcher_hears_of_adoption_and_of_every_step) {
  constexpr int kSteps = 40;
  Job job({.size = 3});
  const auto formed = await_event<JobFormed>(job.server());
  CHECK_EQ(formed.members.size(), 3U);
  Setting setting;
  setting.cycle_time_ms = 0;
  job.each([&](Runtime& runtime, int rank) {
    for (int i = 0; i < kSteps; ++i) {
      if (i == kSteps / 2 && rank == 0) job.server().propose({7, setting});
      step(runtime, rank);
    }
  });
  // Until all have adopted it, for the proposal travels on its own.
  for (int i = 0; i < 100 && job[0].version() != 7; ++i) {
    job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
  }
  job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
  job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
  job.end();
  uint64_t next = 0;
  int mixed = 0;
  int64_t last_version = 0;
  bool adopted = false;
  while (const auto event = job.server().next_event(std::chrono::seconds(60))) {
    if (std::holds_alternative<JobClosed>(*event)) break;
    CHECK(!std::holds_alternative<JobLost>(*event));
    if (const auto* told = std::get_if<JobAdopted>(&*event)) {
      CHECK_EQ(told->version, 7U);
      adopted = true;
    }
    const auto* report = std::get_if<StepReport>(&*event);
    if (report == nullptr) continue;
    CHECK_EQ(report->step, next++);
    CHECK_EQ(report->durations_ns.size(), 3U);
    for (const uint64_t duration : report->durations_ns) CHECK(duration > 0);
    CHECK(report->end_ns > 0);
    mixed += report->version == -1 ? 1 : 0;
    if (report->version != -1) {
      CHECK(report->version == 7 || last_version == 0);
      last_version = report->version;
    }
  }
  CHECK(adopted);
  CHECK(next >= kSteps - 1);
  CHECK_EQ(mixed, 1);
  CHECK_EQ(last_version, 7);
}

TEST(a_proposal_from_rank_0_itself_is_adopted) {
  Job job({.size = 2});
  Setting setting;
  setting.chunk_bytes = 65536;
  CHECK_THROWS(ErrorCode::kUsage, job[1].propose(setting));
  const uint32_t version = job[0].propose(setting);
  // Or the launcher, which numbers its own from 1, would take the step for one under its setting.
  CHECK(version >= kFirstScriptVersion);
  for (int i = 0; i < 100 && job[1].version() != version; ++i) {
    job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
  }
  CHECK_EQ(job[1].version(), version);
  CHECK_EQ(job[1].setting().chunk_bytes, 65536);
}

TEST(the_cache_may_be_turned_off_and_on_again) {
  Job job({.size = 3});
  Setting setting;
  std::map<bool, uint64_t> cached;
  for (const bool enabled : {true, false, true}) {
    setting.cache_enabled = enabled;
    const uint32_t version = job[0].propose(setting);
    while (job[0].version() != version || job[2].version() != version) {
      job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
    }
    job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
    const uint64_t before = job[1].counts().cached_announcements;
    // Shapes change while the cache sleeps.
    job.each([enabled](Runtime& runtime, int rank) {
      std::vector<float> values(enabled ? 4 : 9, 1.0F);
      allreduce_now(runtime, "w0", values);
      CHECK_EQ(values.back(), 3.0F);
      step(runtime, rank);
    });
    cached[enabled] = job[1].counts().cached_announcements - before;
  }
  CHECK_EQ(cached[false], 0U);
  CHECK(cached[true] >= 3U);
}

TEST(a_process_can_start_again_with_another_setting) {
  for (const int64_t threshold : {0, 1 << 20}) {
    JobOptions options{.size = 2};
    options.setting.fusion_threshold_bytes = threshold;
    options.setting.cache_capacity = threshold == 0 ? 0 : 16;
    Job job(options);
    job.each([threshold](Runtime& runtime, int rank) {
      for (int i = 0; i < 3; ++i) step(runtime, rank);
      const CycleCounts counts = runtime.counts();
      CHECK_EQ(counts.tensors, 12U);
      CHECK_EQ(counts.buckets == counts.tensors, threshold == 0);
      CHECK_EQ(counts.cached_announcements, threshold == 0 ? 0U : 8U);
      CHECK_EQ(runtime.setting().fusion_threshold_bytes, threshold);
    });
  }
}

TEST(training_outlives_the_launcher) {
  Job job({.size = 2});
  job.each([](Runtime& runtime, int rank) { step(runtime, rank); });
  job.server().close();
  job.each([](Runtime& runtime, int rank) {
    for (int i = 0; i < 50; ++i) step(runtime, rank);
  });
}

// A caller that flushes subnormals must not change what the cycle thread adds.
TEST(sums_do_not_depend_on_the_callers_floating_point_mode) {
#if defined(__x86_64__)
  const unsigned before = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before | 0x8040);
#endif
  {
    Job job({.size = 2});
    job.each([](Runtime& runtime, int) {
      std::vector<float> values = {std::numeric_limits<float>::denorm_min()};
      allreduce_now(runtime, "subnormal", values);
      uint32_t bits = 0;
      std::memcpy(&bits, values.data(), sizeof bits);
      CHECK_EQ(bits, 2U);
    });
  }
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(before);
#endif
}
