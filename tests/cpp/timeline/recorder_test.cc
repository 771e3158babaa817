#include "timeline/recorder.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <limits>
#include <memory>
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

static uint64_t size_of(const std::string& path) {
  struct stat status{};
  return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

static const std::string kUnwritable = "/proc/absent/rank-0.hvt";

TEST(records_and_names_reach_the_file) {
  const ScratchFile file("basic");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  recorder.start({.path = file.path(), .metadata = "{\"rank\": 3}"});
  const uint32_t name = recorder.intern("grad \"0\"\n");
  buffer.record(event_of(OpType::kAllreduce), 1000, 3500, name, 7, 2, 4096);
  recorder.stop();

  const ReadSegment read = read_segment(file.path());
  CHECK_EQ(read.metadata, "{\"rank\": 3}");
  CHECK_EQ(read.records.size(), 1u);
  CHECK_EQ(read.records[0].begin_ns, 1000u);
  CHECK_EQ(read.records[0].duration_ns(), 2500u);
  CHECK(read.records[0].kind() == event_of(OpType::kAllreduce));
  CHECK_EQ(read.names.at(read.records[0].name), "grad \"0\"\n");
  CHECK_EQ(read.dropped, 0u);
  CHECK(read.ended);
  CHECK_EQ(read.end_records, 1u);
}

TEST(an_idle_recorder_records_nothing) {
  const ScratchFile file("idle");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  buffer.record(EventKind::kStep, 1, 2, 0, 0, 0, 0);
  CHECK(!recorder.enabled());
  recorder.start({.path = file.path()});
  CHECK(recorder.enabled());
  recorder.stop();
  buffer.record(EventKind::kStep, 3, 4, 0, 0, 0, 0);
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
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  const uint32_t name = recorder.intern("weights");
  for (const std::string& path : {first.path(), second.path()}) {
    recorder.start({.path = path});
    buffer.record(EventKind::kQueue, 10, 20, name, 0, 0, 0);
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
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  recorder.start({.path = file.path(), .buffer_records = 8});
  constexpr uint32_t kMany = 100'000;
  for (uint32_t i = 0; i < kMany; ++i) buffer.record(EventKind::kStep, i, i + 1, 0, i, 0, 0);
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
      Recorder::EventBuffer& buffer = recorder.add_buffer();
      const uint32_t name = recorder.intern("thread " + std::to_string(thread));
      for (uint32_t i = 0; !done.load(); ++i) {
        buffer.record(EventKind::kWait, i, i + 1, name, i, thread, 0);
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

TEST(only_the_steps_asked_for_are_recorded_and_what_explains_them) {
  const ScratchFile file("sampled");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  recorder.start({.path = file.path(), .steps = {.first = 2, .end = 3}});
  for (uint32_t step = 0; step < 5; ++step) {
    recorder.begin_step(step);
    buffer.record(EventKind::kWait, step, step + 1, 0, step, 0, 0);
    buffer.keep(clock_record(step, 10, 0));
  }
  recorder.stop();
  const ReadSegment read = read_segment(file.path());
  CHECK_EQ(read.records.size(), 6u);
  for (const Record& record : read.records) {
    CHECK(record.kind() == EventKind::kClock || record.seq == 2);
  }
}

TEST(what_is_requested_is_recorded_until_it_is_cancelled) {
  const ScratchFile file("requested");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  for (uint32_t round = 0; round < 3; ++round) {
    wait_until([&] { return recorder.request({.path = file.path()}).empty(); });
    wait_until([&] { return recorder.enabled(); });
    buffer.record(EventKind::kStep, 1, 2, 0, round, 0, 0);
    recorder.cancel();
    CHECK(!recorder.enabled());
    wait_until([&] { return read_segment(file.path()).ended; });
    CHECK_EQ(read_segment(file.path()).records.at(0).seq, round);
  }
}

TEST(a_request_widens_a_recording_that_is_under_way) {
  const ScratchFile file("widened");
  const ScratchFile other("widened-other");
  Recorder recorder;
  recorder.start({.path = file.path(), .steps = {.first = 100}});
  CHECK_EQ(recorder.request({.path = other.path()}), "");
  CHECK(recorder.enabled());
  recorder.cancel();
  CHECK(!recorder.enabled());
  recorder.stop();
  CHECK(read_segment(file.path()).ended);
  CHECK(read_bytes(other.path()).empty());
}

TEST(a_request_that_cannot_be_met_leaves_the_recorder_idle) {
  const ScratchFile file("after-failure");
  Recorder recorder;
  CHECK_EQ(recorder.request({.path = kUnwritable}), "");
  wait_until([&] { return !recorder.write_error().empty(); });
  CHECK(recorder.write_error().find(kUnwritable) != std::string::npos);
  CHECK(!recorder.enabled());
  wait_until([&] { return recorder.request({.path = file.path()}).empty(); });
}

TEST(recording_stops_at_the_cap) {
  const ScratchFile file("cap-stop");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  recorder.start({.path = file.path(),
                  .max_bytes = 100'000,
                  .when_full = WhenFull::kStop,
                  .buffer_records = 64});
  for (uint32_t i = 0; recorder.enabled(); ++i) {
    buffer.record(EventKind::kStep, i, i + 1, 0, i, 0, 0);
    if (i % 32 == 0) usleep(1000);
  }
  wait_until([&] { return read_segment(file.path()).ended; });
  CHECK_EQ(read_segment(file.path()).full_at, 100'000u);
  CHECK(size_of(file.path()) <= 100'000);
  CHECK_EQ(recorder.stop(), "");
}

// Never returns: records until the parent kills it.
[[noreturn]] static void record_for_ever(const RecorderOptions& options) {
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  recorder.start(options);
  for (uint32_t i = 0;; ++i) {
    const uint32_t name = recorder.intern("tensor " + std::to_string(i % 500));
    const uint64_t now = now_ns();
    buffer.record(event_of(OpType::kAllreduce), now, now + 10, name, i, i, i);
    if (i % 256 == 0) usleep(200);
  }
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

// The promise is 100 ms; the processor may be elsewhere for that long, but not time after time.
TEST(a_killed_process_leaves_what_is_older_than_100_ms) {
  const ScratchFile file("killed-when");
  uint64_t least_ns = std::numeric_limits<uint64_t>::max();
  for (int attempt = 0; attempt < 5; ++attempt) {
    unlink(file.path().c_str());
    const pid_t child = fork();
    if (child == 0) record_for_ever({.path = file.path()});
    wait_until([&] { return size_of(file.path()) > 10'000; });
    usleep(static_cast<useconds_t>(7'000 * attempt));
    CHECK_EQ(kill(child, SIGKILL), 0);
    const uint64_t killed_ns = now_ns();
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    const auto records = read_segment(file.path()).records;
    if (records.empty()) continue;  // killed while it wrote the first ones
    const uint64_t last_ns = records.back().begin_ns;
    least_ns = std::min(least_ns, killed_ns - std::min(killed_ns, last_ns));
  }
  CHECK(least_ns < 100'000'000);
}

// A kill between the emptying of the older segment and its new header leaves it empty; the other
// one then still holds all that was written last.
TEST(a_killed_process_leaves_readable_segments) {
  const ScratchFile file("killed-capped");
  const std::string second = file.path() + ".1";
  const pid_t child = fork();
  if (child == 0) record_for_ever({.path = file.path(), .max_bytes = 400'000});
  wait_until([&] { return size_of(second) > 0; });
  usleep(300'000);
  kill_after_bytes(child, second, 1);
  if (size_of(file.path()) == 0 || size_of(second) == 0) {
    CHECK(!read_segment(size_of(second) == 0 ? file.path() : second).records.empty());
    return;
  }
  const ReadSegment even = read_segment(file.path());
  const ReadSegment odd = read_segment(second);
  CHECK_EQ(even.recording, odd.recording);
  CHECK(even.segment == odd.segment + 1 || odd.segment == even.segment + 1);
}

// The last one: what it leaves behind for a moment is a thread, and other tests fork.
TEST(a_disk_that_does_not_answer_delays_stop_by_the_patience_only) {
  const ScratchFile file("stop-stall");
  const ScratchFile next("after-stall");
  Recorder recorder;
  Recorder::EventBuffer& buffer = recorder.add_buffer();
  // Long enough for start, which has the same timeout, on a machine that is busy otherwise.
  recorder.start({.path = file.path(), .max_bytes = 200'000, .timeout = std::chrono::seconds(2)});
  const std::string second = file.path() + ".1";
  auto stall = std::make_unique<const Stall>(second);
  if (!stall->works()) return;  // this file system has no leases
  for (uint32_t i = 0; !stall->is_felt(); ++i) {
    buffer.record(EventKind::kStep, i, i + 1, 0, i, 0, 0);
    if (i % 256 == 0) usleep(1000);
  }
  const std::string error = recorder.stop();
  CHECK(error.find("the disk did not respond for 2") != std::string::npos);
  CHECK_EQ(recorder.stop(), "");
  // The next recording has the buffers for itself.
  recorder.start({.path = next.path()});
  buffer.record(EventKind::kWait, 1, 2, 0, 9, 0, 0);
  CHECK_EQ(recorder.stop(), "");
  CHECK_EQ(read_segment(next.path()).records.size(), 1u);
  CHECK_EQ(read_segment(next.path()).records[0].seq, 9u);
  stall.reset();
  // The writer that was left alone ends what it had.
  wait_until([&] { return !read_bytes(second).empty() && read_segment(second).ended; });
}
