// Timelines that the launcher asks for while the job runs.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

#include "runtime/job.h"
#include "timeline/reading.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

void step(Job& job) {
  job.each([](Runtime& runtime, int) {
    std::vector<float> values(100, 1.0F);
    finish(runtime, submit_all(runtime, {allreduce_of("w", values)})[0]);
    runtime.mark_step();
  });
}

bool is_whole(const std::string& path) {
  return !read_bytes(path).empty() && read_segment(path).ended;
}

void wait_until(const auto& condition) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(30));
  while (!condition()) {
    CHECK(!deadline.passed());
    usleep(2000);
  }
}

}  // namespace

TEST(ranks_record_between_the_orders_of_the_launcher) {
  const ScratchFile files[] = {ScratchFile("ordered-0"), ScratchFile("ordered-1"),
                               ScratchFile("ordered-2")};
  Job job({.size = 3, .control_fanout = 1});
  std::string path = files[0].path();
  path.replace(path.size() - 1, 1, "%r");
  for (int i = 0; i < 5; ++i) step(job);
  job.server().order({true, path, 1 << 20});
  // The ranks open their files on threads of their own.
  wait_until([&] {
    step(job);
    return std::ranges::all_of(
        files, [](const ScratchFile& file) { return read_bytes(file.path()).size() > 1000; });
  });
  for (int i = 0; i < 20; ++i) step(job);
  job.server().order({});
  wait_until([&] {
    step(job);
    return std::ranges::all_of(files,
                               [](const ScratchFile& file) { return is_whole(file.path()); });
  });
  for (const ScratchFile& file : files) {
    const ReadSegment read = read_segment(file.path());
    CHECK_EQ(read.dropped, 0u);
    std::map<EventKind, int> kinds;
    for (const Record& record : read.records) ++kinds[record.kind()];
    CHECK(kinds[EventKind::kStep] > 0 && kinds[event_of(OpType::kAllreduce)] > 0);
    for (const Record& record : read.records) {
      if (record.kind() == event_of(OpType::kAllreduce)) CHECK(record.seq >= 5);
    }
    CHECK_EQ(read.details.size(), 1u);
    CHECK_EQ(read.details.begin()->second, "float32[100]");
  }
}

TEST(an_idle_job_obeys_at_once) {
  const ScratchFile file("idle-ordered");
  Job job({.size = 2});
  step(job);
  job.server().order({true, file.path() + "%r", 0});
  const ScratchFile of_rank_1("idle-ordered1");
  const ScratchFile of_rank_0("idle-ordered0");
  wait_until([&] { return !read_bytes(of_rank_1.path()).empty(); });
  job.server().order({});
  wait_until([&] { return is_whole(of_rank_0.path()) && is_whole(of_rank_1.path()); });
  step(job);
}

TEST(a_file_that_cannot_be_written_costs_nothing_but_itself) {
  Job job({.size = 2});
  job.server().order({true, "/proc/absent/%r", 0});
  for (int i = 0; i < 20; ++i) step(job);
  job.server().order({});
  for (int i = 0; i < 5; ++i) step(job);
}
