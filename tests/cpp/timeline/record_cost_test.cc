// Prints what a record costs its producer; judges nothing, as that depends on the machine.
#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "timeline/reading.h"
#include "timeline/recorder.h"

using namespace hvdtune;
using namespace hvdtune::testing;

constexpr uint32_t kRecords = 50'000;  // fits a buffer: nothing is dropped

static double ns_per_record(Recorder::EventBuffer& buffer, uint32_t records) {
  const uint64_t begin = now_ns();
  for (uint32_t i = 0; i < records; ++i) {
    buffer.record(event_of(OpType::kAllreduce), begin, begin + i, 1 + i % 100, i, i / 10, 4096);
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
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  for (int i = 1; i <= 100; ++i) recorder.intern("tensor " + std::to_string(i));
  std::vector<double> idle;
  std::vector<double> recording;
  for (int run = 0; run < 15; ++run) {
    idle.push_back(ns_per_record(buffer, kRecords));
    recorder.start({.path = file.path()});
    recording.push_back(ns_per_record(buffer, kRecords));
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
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  std::vector<double> costs;
  for (int run = 0; run < 15; ++run) {
    recorder.start({.path = file.path()});
    const uint64_t begin = now_ns();
    for (uint32_t i = 0; i < kRecords; ++i) {
      const uint64_t from = now_ns();
      buffer.record(EventKind::kWait, from, now_ns(), 0, i, 0, 0);
    }
    costs.push_back(static_cast<double>(now_ns() - begin) / kRecords);
    recorder.stop();
    CHECK_EQ(recorder.dropped(), 0u);
  }
  print_spread("recording, two clock readings included", costs);
}

static std::vector<uint64_t> time_records(Recorder::EventBuffer& buffer, uint32_t records) {
  std::vector<uint64_t> costs(records);
  for (uint32_t i = 0; i < records; ++i) {
    const uint64_t begin = now_ns();
    buffer.record(event_of(OpType::kAllreduce), begin, begin + i, 1, i, i / 10, 4096);
    costs[i] = now_ns() - begin;
  }
  return costs;
}

static void print_percentiles(const char* what, std::vector<uint64_t> costs) {
  std::sort(costs.begin(), costs.end());
  const auto at = [&](double share) {
    return static_cast<unsigned long>(costs[static_cast<size_t>(share * (costs.size() - 1.0))]);
  };
  std::printf(
      "%s: p50 %lu ns, p99 %lu ns, p99.99 %lu ns, most %lu ns of %zu records, two clock "
      "readings included\n",
      what, at(0.5), at(0.99), at(0.9999), at(1), costs.size());
}

TEST(cost_of_a_record_while_the_disk_stalls) {
  constexpr uint32_t kBufferRecords = 1 << 20;
  const ScratchFile file("stall");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  recorder.intern("tensor");
  recorder.start({.path = file.path(), .max_bytes = 400'000, .buffer_records = kBufferRecords});
  uint64_t recorded = 0;
  {
    const Stall stall(file.path() + ".1");
    if (!stall.works()) {
      std::printf("not measured: this file system has no leases\n");
      return;
    }
    while (!stall.is_felt()) {
      recorded += time_records(buffer, 1000).size();
      usleep(1000);
    }
    const std::vector<uint64_t> kept = time_records(buffer, kBufferRecords / 2);
    CHECK(recorder.dropped() == 0);
    const std::vector<uint64_t> dropped = time_records(buffer, 2 * kBufferRecords);
    recorded += kept.size() + dropped.size();
    CHECK(recorder.dropped() > kBufferRecords);
    print_percentiles("disk stalled", kept);
    print_percentiles("disk stalled, buffer full", dropped);
  }
  recorder.stop();
  CHECK_EQ(recorder.write_error(), "");
  ReadSegment read = read_segment(file.path());
  if (!read.ended) read = read_segment(file.path() + ".1");
  CHECK(read.ended);
  CHECK_EQ(read.dropped, recorder.dropped());
  CHECK_EQ(read.end_records + read.dropped, recorded);
}
