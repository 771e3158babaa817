#include "runtime/health/health.h"

#include <poll.h>

#include <new>
#include <optional>

#include "runtime/job.h"
#include "transport/soon.h"
#include "wire/codec.h"
#include "wire/message.h"
#include "wire/report.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// The next frame of this kind; others are passed over.
Frame await(FramedChannel& channel, FrameKind kind) {
  const Deadline deadline = soon();
  while (!deadline.passed()) {
    while (const auto frame = channel.receive()) {
      if (frame->kind == kind) return *frame;
    }
    pollfd watched = poll_entry(channel);
    poll(&watched, 1, deadline.poll_ms());
  }
  throw Error(ErrorCode::kTimeout, "no frame of the kind has come");
}

}  // namespace

// An exception that nobody caught would end the process, and whatever else runs in it.
TEST(a_health_thread_that_fails_ends_the_job_and_says_so) {
  JobServer server(server_options(2));
  StopSignal stop;
  std::vector<std::optional<Mesh>> meshes(2);
  on_all(2, [&](int rank) {
    meshes[static_cast<size_t>(rank)].emplace(
        connect_mesh(runtime_options({.size = 2}, rank, server.port()).mesh, stop));
  });
  FramedChannel other(std::move(*meshes[1]->health[0]), 1);

  OperationTable table;
  WorkCounter work_counter;
  Recorder recorder;
  HangOptions options;
  options.warning = std::chrono::nanoseconds(1);
  HangDetector detector(0, 2, options, table, work_counter,
                        []() -> SetRanks { throw std::bad_alloc(); });
  StopSignal failed;
  RankLease lease;
  Health health(*meshes[0], {}, failed, lease, recorder.add_buffer(), detector);
  health.start();
  // Stuck for a second: rank 0 asks, and explains what it is told.
  other.queue(FrameKind::kPing, encode(Pulse{1, 1'000'000'000, 1}));
  RankReport report;
  report.round = Reader(await(other, FrameKind::kAsk).payload).get<uint32_t>();
  other.queue(FrameKind::kReport, encode(report));

  const Notice told = decode_notice(await(other, FrameKind::kLost).payload);
  CHECK_EQ(told.subject, 0);
  CHECK(told.text.find("rank 0 failed: it cannot monitor the other ranks") != std::string::npos);
  pollfd watched = {failed.fd(), POLLIN, 0};
  CHECK_EQ(poll(&watched, 1, soon().poll_ms()), 1);
  CHECK_EQ(health.loss()->rank(), 0);
  const Error resolved = health.resolve_loss(Error(ErrorCode::kTimeout, "late", 1));
  CHECK_EQ(std::string(resolved.what()), told.text);
  health.shut_down();
}
