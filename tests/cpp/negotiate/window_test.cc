#include "negotiate/window.h"

#include "check.h"

using namespace hvdtune;

TEST(a_batch_waits_for_the_window_after_the_one_before_it) {
  CHECK_EQ(due_ns({1'000'000, 10, false}, 1'500'000, 2.0, 100), 3'000'000U);
}

TEST(a_batch_after_a_pause_is_due_at_once) {
  CHECK(due_ns({1'000'000, 10, false}, 9'000'000, 2.0, 100) <= 9'000'000);
  CHECK(due_ns({0, 10, false}, 9'000'000, 2.0, 100) <= 9'000'000);
}

TEST(a_batch_that_fills_a_bucket_is_due_at_once) {
  CHECK_EQ(due_ns({1'000'000, 100, false}, 1'500'000, 2.0, 100), 1'500'000U);
  CHECK_EQ(due_ns({1'000'000, 99, false}, 1'500'000, 2.0, 100), 3'000'000U);
}

TEST(without_fusion_no_bucket_is_ever_full) {
  CHECK_EQ(due_ns({1'000'000, 100, false}, 1'500'000, 2.0, 0), 3'000'000U);
}

TEST(nothing_is_gained_by_waiting_when_all_ranks_wait) {
  CHECK_EQ(due_ns({1'000'000, 1, true}, 1'500'000, 50.0, 100), 1'500'000U);
}

TEST(a_window_of_0_collects_nothing) {
  CHECK(due_ns({1'000'000, 1, false}, 1'000'000, 0.0, 100) <= 1'000'000);
}
