// What the other ranks see when one does the wrong thing, leaves or dies.
#include <atomic>
#include <latch>
#include <optional>

#include "runtime/framed_channel.h"
#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// Ranks [0, real) are Runtimes; the last is a bare mesh without threads, so that a test decides
// what it does.
struct JobWithStranger {
  JobOptions options;
  JobServer server;
  std::vector<std::unique_ptr<Runtime>> ranks;
  StopSignal stop;
  std::optional<Mesh> stranger;

  explicit JobWithStranger(int size) : options({.size = size}), server(server_options(size)) {
    ranks.resize(static_cast<size_t>(size - 1));
    on_all(size, [this, size](int rank) {
      const RuntimeOptions mine = runtime_options(options, rank, server.port());
      if (rank == size - 1) {
        stranger.emplace(connect_mesh(mine.mesh, stop));
      } else {
        ranks[static_cast<size_t>(rank)] = std::make_unique<Runtime>(mine);
      }
    });
  }

  // The failures of one allreduce on all real ranks.
  std::vector<Error> failures() {
    std::vector<Error> errors(ranks.size(), Error(ErrorCode::kInternal, "none"));
    on_all(static_cast<int>(ranks.size()), [&](int rank) {
      Runtime& runtime = *ranks[static_cast<size_t>(rank)];
      std::vector<float> values(8, 1.0F);
      try {
        errors[static_cast<size_t>(rank)] =
            failure_of(runtime, submit_one(runtime, allreduce_of("doomed", values)));
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error;  // the loss was known before
      }
    });
    return errors;
  }
};

}  // namespace

TEST(a_mismatch_fails_on_every_rank_and_the_job_goes_on) {
  Job job({.size = 3});
  job.each([](Runtime& runtime, int rank) {
    std::vector<float> values(rank == 1 ? 4 : 3, 1.0F);
    const Error error = failure_of(runtime, submit_one(runtime, allreduce_of("odd", values)));
    CHECK(error.code() == ErrorCode::kMismatch);
    CHECK_EQ(error.tensor(), "odd");
    CHECK(contains(error.what(), "rank 1 announced allreduce(sum) float32 [4]"));
    values.assign(3, 1.0F);
    allreduce_now(runtime, "odd", values);
    CHECK_EQ(values[2], 3.0F);
  });
}

TEST(a_name_in_flight_cannot_be_used_again) {
  Job job({.size = 2});
  std::latch refused(1);
  job.each([&](Runtime& runtime, int rank) {
    std::vector<float> values(3, 1.0F);
    std::vector<float> other(3, 1.0F);
    if (rank == 1) refused.wait();
    const Handle handle = submit_one(runtime, allreduce_of("same", values));
    if (rank == 0) {
      CHECK_THROWS(ErrorCode::kDuplicateName, submit_one(runtime, allreduce_of("same", other)));
      std::vector<Draft> twins = {allreduce_of("twin", other), allreduce_of("twin", other)};
      CHECK_THROWS(ErrorCode::kDuplicateName, submit_all(runtime, twins));
      refused.count_down();
    }
    finish(runtime, handle);
    allreduce_now(runtime, "same", values);
    CHECK_EQ(values[0], 4.0F);
  });
}

TEST(arguments_that_no_rank_could_use_are_refused_at_once) {
  Job job({.size = 1});
  Runtime& runtime = job[0];
  std::vector<float> values(4, 1.0F);
  Draft draft = allreduce_of("", values);
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  // Longer than what a message can carry: it would end the job for all.
  draft.request.name = std::string(size_t{65} << 20, 'n');
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  draft.request.name = "t";
  draft.request.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  draft.request.tensors[0].shape = {4, -1};
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  draft.request.tensors[0].shape = {4};
  draft.output = nullptr;
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  draft.request.op = OpType::kBroadcast;
  draft.request.root = 1;
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  draft.request.op = OpType::kAllgather;
  draft.request.tensors[0].shape = {};
  CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
}

TEST(a_name_that_is_too_long_is_not_repeated_whole) {
  Job job({.size = 1});
  std::vector<float> values(4, 1.0F);
  allreduce_now(job[0], std::string(kMostNameBytes, 'n'), values);
  try {
    submit_one(job[0], allreduce_of(std::string(kMostNameBytes + 1, 'n'), values));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(contains(error.what(), "may have at most 4096 bytes"));
    CHECK(contains(error.what(), "has 4097"));
    CHECK(std::string(error.what()).size() < 200);
  }
}

TEST(a_rank_that_shuts_down_is_named_to_those_who_wait) {
  for (const int leaver : {0, 1, 2}) {
    Job job({.size = 3});
    job.each([leaver](Runtime& runtime, int rank) {
      std::vector<float> values(3, 1.0F);
      allreduce_now(runtime, "first", values);
      if (rank == leaver) return runtime.shutdown();
      Error error(ErrorCode::kInternal, "");
      try {
        error = failure_of(runtime, submit_one(runtime, allreduce_of("second", values)));
      } catch (const Error& at_once) {
        error = at_once;
      }
      CHECK(error.code() == ErrorCode::kRankLost);
      CHECK_EQ(error.rank(), leaver);
      CHECK(contains(error.what(), "has shut down"));
      CHECK_EQ(error.tensor(), "second");
    });
  }
}

// An exception between submit and the end of wait, then the interpreter's exit: the others were
// promised the data.
TEST(a_rank_that_shuts_down_without_waiting_leaves_nobody_hanging) {
  for (int round = 0; round < 60; ++round) {
    const int leaver = round % 3;
    Job job({.size = 3, .hosts = 1 + round % 2});
    job.each([leaver, round](Runtime& runtime, int rank) {
      std::vector<float> values(100'000, 1.0F);
      try {
        const Handle handle = submit_one(runtime, allreduce_of("async", values));
        if (rank == leaver) {
          // Leaves at any point from before the announcement to after the end.
          runtime.wait(handle, std::chrono::microseconds(20 * round));
          return runtime.shutdown();
        }
        finish(runtime, handle);
        CHECK_EQ(values[99'999], 3.0F);
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kRankLost);
        CHECK_EQ(error.rank(), leaver);
      }
    });
  }
}

TEST(ranks_that_all_leave_at_once_report_no_loss) {
  for (int round = 0; round < 20; ++round) {
    Job job({.size = 4, .hosts = 1 + round % 2});
    job.each([](Runtime& runtime, int) {
      std::vector<float> values(10'000, 1.0F);
      allreduce_now(runtime, "last", values);
    });
    job.end();
    while (const auto event = job.server().next_event(std::chrono::seconds(60))) {
      CHECK(!std::holds_alternative<JobLost>(*event));
      if (std::holds_alternative<JobClosed>(*event)) break;
    }
  }
}

TEST(operations_after_shutdown_are_refused) {
  Job job({.size = 1});
  std::vector<float> values(3, 1.0F);
  job[0].shutdown();
  job[0].shutdown();
  CHECK_THROWS(ErrorCode::kShutdown, submit_one(job[0], allreduce_of("late", values)));
}

TEST(a_rank_that_dies_is_named_on_every_rank_and_to_the_launcher) {
  JobWithStranger job(4);
  job.stranger.reset();
  for (const Error& error : job.failures()) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), 3);
  }
  while (const auto event = job.server.next_event(std::chrono::seconds(60))) {
    if (const auto* lost = std::get_if<JobLost>(&*event)) {
      CHECK_EQ(lost->rank, 3);
      return;
    }
  }
  CHECK(false);
}

TEST(a_rank_that_says_what_it_cannot_ends_the_job_everywhere) {
  JobWithStranger job(4);
  FramedChannel control(std::move(*job.stranger->parent), 3);
  Announce announce;
  announce.cached = {77};
  control.send(FrameKind::kAnnounce, encode(announce), Deadline::in(std::chrono::seconds(20)),
               job.stop);
  const std::vector<Error> errors = job.failures();
  CHECK(contains(errors[0].what(), "unknown cache entry 77"));
  for (const Error& error : errors) CHECK(contains(error.what(), "was not completed"));
  CHECK(errors[1].code() == ErrorCode::kRankLost);
  CHECK_EQ(errors[1].rank(), 0);
}

TEST(bytes_that_are_not_signed_end_the_job_everywhere) {
  JobWithStranger job(3);
  const std::vector<uint8_t> garbage(64, 0x5a);
  job.stranger->parent->socket.send_all(garbage.data(), garbage.size(),
                                        Deadline::in(std::chrono::seconds(20)), job.stop);
  const std::vector<Error> errors = job.failures();
  CHECK(contains(errors[0].what(), "wrong header"));
  CHECK(errors[1].code() == ErrorCode::kRankLost);
}

TEST(a_loss_that_one_rank_alone_sees_reaches_all) {
  JobWithStranger job(4);
  FramedChannel health(std::move(*job.stranger->health[0]), 3);
  health.queue(FrameKind::kLost, encode(Notice{3, "rank 3 tells of a loss"}));
  for (const Error& error : job.failures()) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK(contains(error.what(), "rank 3 tells of a loss"));
  }
}

TEST(a_rank_that_was_given_up_reports_no_success) {
  JobWithStranger job(2);
  (void)job.stranger->arena->abandon(0, std::chrono::seconds(50),
                                     [](const auto&) { CHECK(false); });
  FramedChannel control(std::move(*job.stranger->parent), 1);
  const Draft barrier = barrier_of("last");
  Announce announce;
  announce.requests = {{barrier.request, {1}}};
  control.send(FrameKind::kAnnounce, encode(announce), Deadline::in(std::chrono::seconds(20)),
               job.stop);
  Runtime& runtime = *job.ranks[0];
  const Error error = failure_of(runtime, submit_one(runtime, barrier));
  CHECK(error.code() == ErrorCode::kRankLost);
  CHECK_EQ(error.rank(), 1);
  CHECK(contains(error.what(), "rank 1 has lost this rank"));
}

TEST(a_failure_is_told_once_no_rank_writes_any_more) {
  JobWithStranger job(2);
  Arena& arena = *job.stranger->arena;
  std::latch begun(1);
  std::atomic<bool> is_over{false};
  std::atomic<bool> has_written{false};
  const auto goes_on = [&] {
    try {
      arena.check_not_abandoned();
      return !is_over.load();
    } catch (const Error&) {
      return false;
    }
  };
  std::jthread writer([&] {
    const Arena::WritePhase writes(arena);
    begun.count_down();
    while (goes_on()) std::this_thread::yield();
    has_written.store(true);
  });
  begun.wait();
  job.stranger->parent.reset();
  const Error error = job.failures()[0];
  const bool had_written = has_written.load();
  is_over.store(true);
  CHECK(error.code() == ErrorCode::kRankLost);
  CHECK_EQ(error.rank(), 1);
  CHECK(had_written);
}

TEST(a_silent_rank_is_lost_after_the_heartbeat_timeout) {
  JobOptions options{.size = 2};
  options.heartbeat_timeout = std::chrono::milliseconds(300);
  JobServer server(server_options(2));
  StopSignal stop;
  std::unique_ptr<Runtime> runtime;
  std::optional<Mesh> silent;
  on_all(2, [&](int rank) {
    const RuntimeOptions mine = runtime_options(options, rank, server.port());
    if (rank == 0) {
      runtime = std::make_unique<Runtime>(mine);
    } else {
      silent.emplace(connect_mesh(mine.mesh, stop));
    }
  });
  std::vector<float> values(3, 1.0F);
  const Error error = failure_of(*runtime, submit_one(*runtime, allreduce_of("x", values)));
  CHECK(error.code() == ErrorCode::kRankLost);
  CHECK_EQ(error.rank(), 1);
  CHECK(contains(error.what(), "has not answered for 0.3 s"));
}
