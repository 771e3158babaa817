#include "timeline/file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "timeline/reading.h"

using namespace hvdtune;
using namespace hvdtune::testing;

static std::string tensor_name(uint32_t id) { return "tensor " + std::to_string(id); }

static Record allreduce(uint32_t i) {
  return {1000 + i, pack_duration(event_of(OpType::kAllreduce), 0, 5), 1 + i % 10, i, 0, 64};
}

static std::vector<Record> allreduces(uint32_t from, uint32_t count) {
  std::vector<Record> records;
  for (uint32_t i = from; i < from + count; ++i) records.push_back(allreduce(i));
  return records;
}

static uint64_t size_of_file(const std::string& path) { return read_bytes(path).size(); }

TEST(crc_matches_zlib) {
  CHECK_EQ(crc32("123456789"), 0xCBF43926u);
  CHECK_EQ(crc32("56789", crc32("1234")), 0xCBF43926u);
}

TEST(durations_saturate_and_never_go_negative) {
  const auto duration = [](uint64_t begin, uint64_t end) {
    return pack_duration(EventKind::kStep, begin, end) & Record::kMaxDurationNs;
  };
  CHECK_EQ(duration(10, 5), 0u);
  CHECK_EQ(duration(0, uint64_t{1} << 60), Record::kMaxDurationNs);
  CHECK_EQ(saturated(uint64_t{1} << 40), 0xFFFFFFFFu);
}

TEST(a_name_is_written_once_per_segment) {
  const ScratchFile path("names");
  int asked = 0;
  TraceFile file({.path = path.path(), .metadata = "{}", .name_of = [&](uint32_t id) {
                    ++asked;
                    return tensor_name(id);
                  }});
  for (int round = 0; round < 3; ++round) file.append(allreduces(0, 50));
  CHECK_EQ(asked, 10);
  CHECK_EQ(read_segment(path.path()).names.size(), 10u);
}

TEST(the_oldest_records_go_when_the_cap_is_reached) {
  const ScratchFile path("capped");
  constexpr uint64_t kCap = 64 * 1024;
  TraceFile file({.path = path.path(), .max_bytes = kCap, .recording = 5, .name_of = tensor_name});
  constexpr uint32_t kMany = 20'000;
  for (uint32_t i = 0; i < kMany; i += 100) {
    CHECK_EQ(file.append(allreduces(i, 100)), 100u);
    CHECK(size_of_file(path.path()) + size_of_file(path.path() + ".1") <= kCap);
  }
  file.finish(0);

  ReadSegment older = read_segment(path.path());
  ReadSegment newer = read_segment(path.path() + ".1");
  if (older.segment > newer.segment) std::swap(older, newer);
  CHECK_EQ(older.segment + 1, newer.segment);
  CHECK_EQ(newer.records.back().seq, kMany - 1);
  CHECK_EQ(newer.records.front().seq, older.records.back().seq + 1);
  CHECK(older.records.size() + newer.records.size() > kCap / 64);
  CHECK_EQ(newer.end_records, kMany);
  for (const ReadSegment& segment : {older, newer}) {
    for (const Record& record : segment.records) CHECK(segment.names.contains(record.name));
  }
}

TEST(recording_stops_at_the_cap_when_that_is_wanted) {
  const ScratchFile path("stops");
  constexpr uint64_t kCap = 64 * 1024;
  TraceFile file({.path = path.path(),
                  .max_bytes = kCap,
                  .when_full = WhenFull::kStop,
                  .name_of = tensor_name});
  uint32_t taken = 0;
  while (!file.is_full()) {
    taken += static_cast<uint32_t>(file.append(allreduces(taken, 100)));
    CHECK(taken < 10'000);
  }
  CHECK_EQ(file.append(allreduces(0, 1)), 0u);
  file.note_drops(5);
  file.finish(7);
  CHECK(size_of_file(path.path()) <= kCap);
  CHECK_EQ(size_of_file(path.path() + ".1"), 0u);
  const ReadSegment read = read_segment(path.path());
  CHECK_EQ(read.records.size(), taken);
  CHECK_EQ(read.records.front().seq, 0u);
  CHECK_EQ(read.full_at, kCap);
  CHECK_EQ(read.dropped, 7u);
  CHECK_EQ(file.error(), "");
}

TEST(what_a_name_stands_for_is_written_beside_it) {
  const ScratchFile path("details");
  TraceFile file({.path = path.path(), .name_of = tensor_name, .detail_of = [](uint32_t id) {
                    return id == 3 ? std::string("float32[2,3]") : std::string();
                  }});
  file.append(allreduces(0, 50));
  const ReadSegment read = read_segment(path.path());
  CHECK_EQ(read.details.size(), 1u);
  CHECK_EQ(read.details.at(3), "float32[2,3]");
}

TEST(segments_carry_the_setting_and_the_clock_along) {
  const ScratchFile path("carried");
  TraceFile file({.path = path.path(), .max_bytes = 32 * 1024, .name_of = tensor_name});
  file.append(std::vector<Record>{clock_record(10, 2000, -7),
                                  {20, pack_duration(EventKind::kKnobAdopted, 0, 0), 99, 0, 0, 4}});
  for (uint32_t i = 0; i < 5'000; i += 100) file.append(allreduces(i, 100));
  for (const std::string& segment_path : {path.path(), path.path() + ".1"}) {
    const ReadSegment read = read_segment(segment_path);
    CHECK_EQ(read.carried.size(), 2u);
    CHECK(read.carried[0].kind() == EventKind::kClock);
    CHECK_EQ(read.carried[1].arg, 4u);
    CHECK_EQ(read.names.at(99), tensor_name(99));
  }
}

TEST(a_cap_smaller_than_a_block_still_records) {
  const ScratchFile path("tiny-cap");
  TraceFile file({.path = path.path(), .max_bytes = 1, .name_of = tensor_name});
  for (uint32_t i = 0; i < 1'000; i += 100) CHECK_EQ(file.append(allreduces(i, 100)), 100u);
  const ReadSegment newest = read_segment(path.path() + ".1");
  CHECK_EQ(newest.records.back().seq, 999u);
}

TEST(an_older_recording_is_replaced_with_its_second_segment) {
  const ScratchFile path("stale");
  {
    std::ofstream(path.path() + ".1") << "old";
  }
  TraceFile file({.path = path.path(), .metadata = "{}", .name_of = tensor_name});
  CHECK(read_bytes(path.path() + ".1").empty());
}

TEST(a_link_is_not_followed) {
  const ScratchFile path("link");
  const ScratchFile target("target");
  for (const char* segment : {"", ".1"}) {
    CHECK_EQ(symlink(target.path().c_str(), (path.path() + segment).c_str()), 0);
  }
  CHECK_THROWS(ErrorCode::kUsage, TraceFile({.path = path.path(), .name_of = tensor_name}));
  CHECK(access(target.path().c_str(), F_OK) != 0);
}

// The limit on file size stands for a full disk.
TEST(a_full_disk_leaves_whole_blocks_and_recording_goes_on_after_it) {
  const ScratchFile path("disk-full");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  CHECK_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  TraceFile file({.path = path.path(), .metadata = "{}", .name_of = tensor_name});
  CHECK_EQ(file.append(allreduces(0, 100)), 100u);
  const rlimit small{5'000, before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  CHECK_EQ(file.append(allreduces(100, 100)), 0u);
  CHECK_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  CHECK(file.error().find(path.path()) != std::string::npos);
  CHECK_EQ(file.append(allreduces(200, 100)), 100u);
  file.finish(100);

  const ReadSegment read = read_segment(path.path());
  CHECK_EQ(read.records.size(), 200u);
  CHECK_EQ(read.records[100].seq, 200u);
  CHECK_EQ(read.dropped, 100u);
  CHECK(read.ended);
}

// tests/golden/timeline/rank-0.hvt is what readers are tested on.
TEST(the_format_is_that_of_the_golden_file) {
  const std::string here = __FILE__;
  const std::string golden =
      here.substr(0, here.find("tests/cpp/")) + "tests/golden/timeline/rank-0.hvt";
  const ScratchFile path("golden");
  const std::vector<std::string> names = {
      "",        "grad.0", "say \"hi\"\n\\", "threshold", "{\"fusion_threshold_bytes\": 1048576}",
      "barrier", "join"};
  {
    TraceFile file({.path = path.path(),
                    .metadata = "{\"rank\": 0, \"size\": 1, \"host\": \"alpha\", \"pid\": 42, "
                                "\"version\": \"0.1.0\", \"monotonic_ns\": 1000000, "
                                "\"unix_ns\": 1700000000000000000, \"start_setting\": "
                                "{\"cache_enabled\": true}}",
                    .recording = 1000000,
                    .name_of = [&names](uint32_t id) { return names[id]; }});
    const auto record = [&file](EventKind kind, uint64_t begin_us, uint64_t end_us, uint32_t name,
                                uint32_t seq, uint32_t bucket, uint32_t arg) {
      const Record one{begin_us * 1000 + 1,
                       pack_duration(kind, begin_us * 1000, end_us * 1000),
                       name,
                       seq,
                       bucket,
                       arg};
      CHECK_EQ(file.append({&one, 1}), 1u);
    };
    const Record clock = clock_record(2000, 9000, -3);
    file.append({&clock, 1});
    record(EventKind::kNegotiate, 10, 40, 1, 0, 0, 1);
    record(EventKind::kLate, 35, 50, 1, 0, 0, 0);
    record(EventKind::kNegotiate, 12, 41, 2, 1, 0, 0);
    record(EventKind::kCycle, 42, 42, 0, 1, 8192, 2);
    record(EventKind::kQueue, 40, 45, 1, 0, 0, 0);
    record(EventKind::kPack, 45, 50, 0, 0, 0, 8192);
    record(EventKind::kExchange, 50, 70, 0, 0, 0, 4096);
    record(EventKind::kReduce, 70, 75, 0, 0, 0, 8192);
    record(EventKind::kWait, 75, 78, 0, 0, 0, 0);
    record(EventKind::kUnpack, 78, 80, 0, 0, 0, 8192);
    record(event_of(OpType::kAllreduce), 45, 80, 1, 0, 0, 4096);
    record(event_of(OpType::kAllreduce), 45, 80, 2, 1, 0, 4096);
    record(EventKind::kBucket, 45, 80, 3, 2, 0, 8192);
    record(EventKind::kKnobAdopted, 85, 85, 4, 0, 0, 1);
    record(event_of(OpType::kBroadcast), 90, 95, 1, 2, 1, 16);
    record(event_of(OpType::kAllgather), 96, 99, 1, 3, 2, 32);
    record(event_of(OpType::kBarrier), 100, 101, 5, 4, 3, 0);
    record(EventKind::kNegotiate, 101, 102, 2, 0, 4, negotiate_arg(true, 3));
    record(event_of(OpType::kAlltoall), 102, 104, 2, 0, 4, 64);
    record(event_of(OpType::kReducescatter), 104, 105, 1, 5, 5, 48);
    record(event_of(OpType::kJoin), 105, 107, 6, 6, 6, 0);
    record(EventKind::kStep, 5, 110, 0, 0, 0, 0);
    file.note_drops(2);
    file.finish(3);
  }
  CHECK(read_bytes(path.path()) == read_bytes(golden));
}
