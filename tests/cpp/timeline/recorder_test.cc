#include "timeline/recorder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <thread>

#include "base/clock.h"
#include "timeline/reading.h"

using namespace hvdtune;
using namespace hvdtune::testing;

static void wait_until(const auto& condition) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (!condition()) {
    CHECK(!deadline.passed());
    usleep(2000);
  }
}

static const std::string kUnwritable = "/nonexistent-directory/rank-0.hvt";

TEST(records_and_names_reach_the_file) {
  const ScratchFile file("basic");
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  recorder.start({.path = file.path(), .metadata = "{\"rank\": 3}"});
  const uint32_t name = recorder.intern("grad \"0\"\n");
  lane.record(EventKind::kAllreduce, 1000, 3500, name, 7, 2, 4096);
  recorder.stop();

  const ReadSegment read = read_segment(file.path());
  CHECK_EQ(read.metadata, "{\"rank\": 3}");
  CHECK_EQ(read.records.size(), 1u);
  CHECK_EQ(read.records[0].begin_ns, 1000u);
  CHECK_EQ(read.records[0].duration_ns(), 2500u);
  CHECK(read.records[0].kind() == EventKind::kAllreduce);
  CHECK_EQ(read.names.at(read.records[0].name), "grad \"0\"\n");
  CHECK_EQ(read.dropped, 0u);
  CHECK(read.ended);
  CHECK_EQ(read.end_records, 1u);
}

TEST(an_idle_recorder_records_nothing) {
  const ScratchFile file("idle");
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  lane.record(EventKind::kStep, 1, 2, 0, 0, 0, 0);
  CHECK(!recorder.enabled());
  recorder.start({.path = file.path()});
  CHECK(recorder.enabled());
  recorder.stop();
  lane.record(EventKind::kStep, 3, 4, 0, 0, 0, 0);
  CHECK(!recorder.enabled());
  CHECK_EQ(read_segment(file.path()).records.size(), 0u);
  CHECK_EQ(recorder.dropped(), 0u);
}

TEST(ids_are_stable_and_equal_for_equal_names) {
  Recorder recorder;
  CHECK_EQ(recorder.intern(""), 0u);
  const uint32_t first = recorder.intern("a");
  CHECK(recorder.intern("b") != first);
  CHECK_EQ(recorder.intern("a"), first);
}

TEST(names_survive_a_second_start) {
  const ScratchFile first("again-1");
  const ScratchFile second("again-2");
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  const uint32_t name = recorder.intern("weights");
  for (const std::string& path : {first.path(), second.path()}) {
    recorder.start({.path = path});
    lane.record(EventKind::kQueue, 10, 20, name, 0, 0, 0);
    recorder.stop();
  }
  for (const std::string& path : {first.path(), second.path()}) {
    const ReadSegment read = read_segment(path);
    CHECK_EQ(read.records.size(), 1u);
    CHECK_EQ(read.names.at(name), "weights");
  }
}

TEST(stop_may_be_called_again_and_start_must_not) {
  const ScratchFile file("twice");
  Recorder recorder;
  recorder.stop();
  recorder.start({.path = file.path()});
  CHECK_THROWS(ErrorCode::kUsage, recorder.start({.path = file.path()}));
  recorder.stop();
  recorder.stop();
}

TEST(a_path_that_cannot_be_written_is_named) {
  Recorder recorder;
  std::string text;
  try {
    recorder.start({.path = kUnwritable});
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kUsage);
    text = error.what();
  }
  CHECK(text.find(kUnwritable) != std::string::npos);
  CHECK(!recorder.enabled());
}

TEST(a_full_lane_drops_counts_and_goes_on) {
  const ScratchFile file("full");
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  recorder.start({.path = file.path(), .lane_records = 8});
  constexpr uint32_t kMany = 100'000;
  for (uint32_t i = 0; i < kMany; ++i) lane.record(EventKind::kStep, i, i + 1, 0, i, 0, 0);
  recorder.stop();
  const ReadSegment read = read_segment(file.path());
  CHECK(recorder.dropped() > 0);
  CHECK_EQ(read.dropped, recorder.dropped());
  CHECK_EQ(read.records.size() + recorder.dropped(), kMany);
}

TEST(several_threads_record_while_another_starts_and_stops) {
  const ScratchFile file("threads");
  Recorder recorder;
  std::atomic<bool> done{false};
  std::vector<std::thread> producers;
  for (uint32_t thread = 0; thread < 3; ++thread) {
    producers.emplace_back([&recorder, &done, thread] {
      Recorder::Lane& lane = recorder.add_lane();
      const uint32_t name = recorder.intern("thread " + std::to_string(thread));
      for (uint32_t i = 0; !done.load(); ++i) {
        lane.record(EventKind::kWait, i, i + 1, name, i, thread, 0);
        if (i % 64 == 0) std::this_thread::yield();
      }
    });
  }
  for (int round = 0; round < 5; ++round) {
    recorder.start({.path = file.path()});
    usleep(20'000);
    recorder.stop();
    std::map<uint32_t, uint32_t> next;
    const ReadSegment read = read_segment(file.path());
    for (const Record& record : read.records) {
      CHECK_EQ(read.names.at(record.name), "thread " + std::to_string(record.bucket));
      const auto known = next.find(record.bucket);
      CHECK(known == next.end() || record.seq >= known->second);
      next[record.bucket] = record.seq + 1;
    }
  }
  done = true;
  for (std::thread& producer : producers) producer.join();
}

// Never returns: records until the parent kills it.
[[noreturn]] static void record_for_ever(const RecorderOptions& options) {
  Recorder recorder;
  Recorder::Lane& lane = recorder.add_lane();
  recorder.start(options);
  for (uint32_t i = 0;; ++i) {
    const uint32_t name = recorder.intern("tensor " + std::to_string(i % 500));
    const uint64_t now = now_ns();
    lane.record(EventKind::kAllreduce, now, now + 10, name, i, i, i);
    if (i % 256 == 0) usleep(200);
  }
}

static uint64_t size_of(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

static void kill_after_bytes(pid_t child, const std::string& path, uint64_t bytes) {
  wait_until([&] { return size_of(path) >= bytes; });
  CHECK_EQ(kill(child, SIGKILL), 0);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status));
}

TEST(a_killed_process_leaves_a_readable_file) {
  const ScratchFile file("killed");
  for (uint64_t bytes : {2'000u, 300'000u, 700'000u}) {
    unlink(file.path().c_str());
    const pid_t child = fork();
    if (child == 0) record_for_ever({.path = file.path(), .metadata = "{\"rank\": 0}"});
    kill_after_bytes(child, file.path(), bytes);
    const ReadSegment read = read_segment(file.path());
    CHECK_EQ(read.metadata, "{\"rank\": 0}");
    CHECK(!read.ended);
    CHECK(bytes < 100'000 || !read.records.empty());
    for (const Record& record : read.records) {
      CHECK_EQ(read.names.at(record.name), "tensor " + std::to_string(record.seq % 500));
    }
  }
}

TEST(a_killed_process_leaves_readable_segments) {
  const ScratchFile file("killed-capped");
  const pid_t child = fork();
  if (child == 0) record_for_ever({.path = file.path(), .max_bytes = 400'000});
  wait_until([&] { return size_of(file.path() + ".1") > 0; });
  usleep(300'000);
  kill_after_bytes(child, file.path() + ".1", 1);
  const ReadSegment even = read_segment(file.path());
  const ReadSegment odd = read_segment(file.path() + ".1");
  CHECK_EQ(even.recording, odd.recording);
  CHECK(even.segment == odd.segment + 1 || odd.segment == even.segment + 1);
}
