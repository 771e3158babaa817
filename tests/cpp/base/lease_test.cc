#include "base/lease.h"

#include <thread>

#include "base/status.h"
#include "check.h"

using namespace hvdtune;

TEST(a_lease_is_held_until_its_time_and_never_shortened) {
  RankLease lease;
  CHECK(!lease.is_held());
  lease.extend(1);
  CHECK(!lease.is_held());
  lease.extend(RankLease::kForEver);
  lease.extend(1);
  CHECK(lease.is_held());
}

TEST(whoever_waits_for_a_lease_goes_on_once_it_is_held_or_the_job_has_ended) {
  StopSignal stop;
  RankLease lease;
  std::jthread extends([&] { lease.extend(RankLease::kForEver); });
  lease.await(stop);
  stop.raise();
  try {
    lease.await(stop);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kShutdown);
  }
}
