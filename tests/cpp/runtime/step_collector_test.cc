#include "runtime/steering/step_collector.h"

#include "check.h"

using namespace hvdtune;

TEST(a_step_is_reported_once_all_ranks_have_told) {
  StepCollector collector(2);
  collector.note_own(0, 3, 1000);
  CHECK(!collector.add({0, 0, 70}));
  const auto report = collector.add({1, 0, 90});
  CHECK(report.has_value());
  CHECK_EQ(report->step, 0U);
  CHECK_EQ(report->version, 3);
  CHECK_EQ(report->end_ns, 1000U);
  CHECK(report->durations_ns == std::vector<uint64_t>({70, 90}));
}

TEST(steps_that_a_rank_left_out_are_forgotten) {
  StepCollector collector(2);
  CHECK(!collector.add({0, 0, 1}));
  CHECK(!collector.add({0, 1, 1}));
  CHECK(collector.add({1, 1, 1}).has_value());
  CHECK(!collector.add({1, 0, 1}));
}

TEST(a_rank_that_never_tells_does_not_make_the_rows_pile_up) {
  StepCollector collector(2);
  for (uint64_t step = 0; step < 100'000; ++step) CHECK(!collector.add({0, step, 1}));
  CHECK(!collector.add({1, 0, 1}));
  CHECK(collector.add({1, 99'999, 1}).has_value());
}
