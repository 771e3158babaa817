#include "runtime/cpu_time_meter.h"

#include <chrono>
#include <ctime>
#include <thread>

#include "check.h"

using namespace hvdtune;

namespace {

void compute(uint64_t ns) {
  const auto used = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(time.tv_nsec);
  };
  const uint64_t begin = used();
  while (used() - begin < ns) {
  }
}

}  // namespace

TEST(what_a_thread_computes_is_counted_and_what_it_sleeps_is_not) {
  CpuTimeMeter meter;
  CHECK(!meter.since_last());
  compute(5'000'000);
  const auto computed = meter.since_last();
  CHECK(computed && computed->ran_ns >= 5'000'000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto slept = meter.since_last();
  CHECK(slept && slept->ran_ns < 15'000'000);
}

TEST(another_thread_has_nothing_to_compare_with) {
  CpuTimeMeter meter;
  meter.since_last();
  std::thread([&] { CHECK(!meter.since_last()); }).join();
  CHECK(!meter.since_last());
  CHECK(meter.since_last());
}
