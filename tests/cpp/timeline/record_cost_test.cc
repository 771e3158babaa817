// Prints what a record costs its producer; judges nothing, as that depends on the machine.
#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "timeline/reading.h"
#include "timeline/recorder.h"

using namespace hvdtune;
using namespace hvdtune::testing;

constexpr uint32_t kRecords = 50'000;  // fits a lane: nothing is dropped

static double ns_per_record(Recorder::Lane& lane, uint32_t records) {
  const uint64_t begin = now_ns();
  for (uint32_t i = 0; i < records; ++i) {
    lane.record(EventKind::kAllreduce, begin, begin + i, 1 + i % 100, i, i / 10, 4096);
  }
  return static_cast<double>(now_ns() - begin) / records;
}

static void print_spread(const char* what, std::vector<double> costs) {
  std::sort(costs.begin(), costs.end());
  std::printf("%s: %.1f ns per record, median of %zu runs (%.1f to %.1f)\n", what,
              costs[costs.size() / 2], costs.size(), costs.front(), costs.back());
}

TEST(cost_of_a_record_while_the_writer_runs) {
  const ScratchFile file("cost");
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  for (int i = 1; i <= 100; ++i) recorder.intern("tensor " + std::to_string(i));
  std::vector<double> idle;
  std::vector<double> recording;
  for (int run = 0; run < 15; ++run) {
    idle.push_back(ns_per_record(lane, kRecords));
    recorder.start({.path = file.path()});
    recording.push_back(ns_per_record(lane, kRecords));
    recorder.stop();
    CHECK_EQ(recorder.dropped(), 0u);
    CHECK_EQ(read_segment(file.path()).records.size(), kRecords);
  }
  print_spread("idle", idle);
  print_spread("recording", recording);
}

TEST(cost_of_a_record_with_both_clock_readings) {
  const ScratchFile file("cost-clock");
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  std::vector<double> costs;
  for (int run = 0; run < 15; ++run) {
    recorder.start({.path = file.path()});
    const uint64_t begin = now_ns();
    for (uint32_t i = 0; i < kRecords; ++i) {
      const uint64_t from = now_ns();
      lane.record(EventKind::kWait, from, now_ns(), 0, i, 0, 0);
    }
    costs.push_back(static_cast<double>(now_ns() - begin) / kRecords);
    recorder.stop();
    CHECK_EQ(recorder.dropped(), 0u);
  }
  print_spread("recording, two clock readings included", costs);
}
