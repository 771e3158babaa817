#include "timeline/sampling.h"

#include "check.h"

using namespace hvdtune;

TEST(a_window_has_every_nth_of_its_steps) {
  const StepWindow window{.first = 100, .end = 120, .every = 10};
  CHECK(window.contains(100) && window.contains(110));
  CHECK(!window.contains(99) && !window.contains(105) && !window.contains(120));
  CHECK(!window.has_all() && StepWindow{}.has_all());
}

TEST(without_a_window_records_are_taken_before_the_first_step_too) {
  Sampling sampling;
  CHECK(!sampling.recording() && !sampling.sampled());
  sampling.open({});
  CHECK(sampling.recording() && sampling.sampled());
  sampling.close();
  CHECK(!sampling.recording() && !sampling.sampled());
}

TEST(a_window_opens_and_closes_with_its_steps) {
  Sampling sampling;
  sampling.open({.first = 1, .end = 2});
  CHECK(sampling.recording() && !sampling.sampled());
  for (const uint64_t step : {0U, 1U, 2U}) {
    sampling.begin_step(step);
    CHECK_EQ(sampling.sampled(), step == 1);
  }
}

TEST(a_step_that_began_before_recording_counts) {
  Sampling sampling;
  sampling.begin_step(7);
  sampling.open({.first = 7, .end = 8});
  CHECK(sampling.sampled());
}

TEST(all_steps_may_be_wanted_for_a_while) {
  Sampling sampling;
  sampling.want_all(true);
  CHECK(!sampling.sampled());
  sampling.open({.first = 100});
  sampling.want_all(true);
  CHECK(sampling.sampled());
  sampling.want_all(false);
  CHECK(!sampling.sampled());
}
