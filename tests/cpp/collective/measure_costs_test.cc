#include "collective/measure_costs.h"

#include "check.h"
#include "transport/backoff.h"

using namespace hvdtune;

TEST(every_cost_is_measured_and_positive) {
  const HostCosts costs = measure_host_costs();
  for (const HostCostField& field : kHostCostFields) {
    CHECK(costs.*field.value > 0);
    CHECK(costs.*field.value < 1e9);
  }
}

TEST(waits_spin_for_about_as_long_as_it_takes_to_be_woken) {
  HostCosts costs;
  costs.spin_ns = 50;
  uint64_t caller_ns = 0;
  int rounds = 0;
  for (costs.wake_ns = 1000; costs.wake_ns < 1e7; costs.wake_ns *= 2) {
    CHECK(caller_spin_ns(costs) >= caller_ns);
    CHECK(spin_rounds(costs) >= rounds);
    caller_ns = caller_spin_ns(costs);
    rounds = spin_rounds(costs);
    CHECK(caller_ns >= 40'000);
    CHECK(caller_ns <= 400'000);
    CHECK(rounds >= 400);
    CHECK(rounds <= 4000);
  }
  // The shorter a round, the more of them.
  costs.wake_ns = 40'000;
  CHECK_EQ(spin_rounds(costs), 800);
  costs.spin_ns = 20;
  CHECK_EQ(spin_rounds(costs), 2000);
  CHECK_EQ(caller_spin_ns(costs), 80'000U);
  CHECK_EQ(spins_for(3, 2, costs), 0);
}
