#include "base/clock.h"

#include <limits>

#include "check.h"

using namespace hvdtune;
using std::chrono::nanoseconds;

TEST(seconds_beyond_what_is_counted_are_the_longest_wait) {
  for (const double seconds : {1e10, 1e18, 1e300, std::numeric_limits<double>::infinity()}) {
    CHECK(to_nanoseconds(seconds) == kLongestWait);
  }
  CHECK(to_nanoseconds(1.5) == nanoseconds(1'500'000'000));
  CHECK(to_nanoseconds(0) == nanoseconds(0));
  CHECK(to_nanoseconds(1e8) < kLongestWait);
}

TEST(the_longest_wait_has_not_passed_and_can_be_added_up) {
  CHECK(!Deadline::in(kLongestWait).passed());
  CHECK(wait_limit(nanoseconds::max()) > std::chrono::steady_clock::now());
  CHECK(nanoseconds::max() / 16 > kLongestWait);  // health waits up to 15 times as long
}
