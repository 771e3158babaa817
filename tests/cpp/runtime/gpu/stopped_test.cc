// A rank that is stopped and given up by the others, and then goes on: it neither puts anything on
// its GPU, whose kernels would write into their memory, nor reports success. Each rank has a host
// of its own, so that no shared memory tells it what has become of it.
#include <signal.h>

#include "rank_processes.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kRanks = 3;
constexpr int kStoppedAt = 3;
constexpr const char* kCountLaunches = "slow-launch ms=0";

// Exit codes of a rank.
constexpr int kWasTold = 0;  // of the victim's loss, and it had done nothing since it was stopped
constexpr int kOtherError = 2;
constexpr int kNoError = 3;
constexpr int kReportedSuccess = 4;
constexpr int kLaunched = 5;

// `victim` is stopped by the fault in its last operation, or before it.
int run_stopped_rank(int rank, uint16_t port, int victim, const std::string& fault,
                     uint64_t launches) {
  Fake::get();  // its settings come before the library
  Fake::get().set_faults(kCountLaunches);
  const Device device(rank);
  JobOptions job{.size = kRanks, .hosts = kRanks};
  job.heartbeat_timeout = std::chrono::seconds(1);
  Runtime runtime(
      with_gpu(runtime_options(job, rank, port), GpuBits::kNccl, std::chrono::seconds(30)));
  const GpuTensorPair tensor(device, floats(1.0F));
  int done = 0;
  try {
    for (; done < 10; ++done) {
      if (rank == victim && done == kStoppedAt) {
        Fake::get().set_faults((std::string(kCountLaunches) + "; " + fault).c_str());
      }
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("x"), {tensor.memory()}));
      finish(runtime, runtime.submit(std::move(one))[0]);
    }
  } catch (const Error& error) {
    if (rank == victim && done > kStoppedAt) return kReportedSuccess;
    if (rank == victim && Fake::get().faults_hit("slow-launch") != launches) return kLaunched;
    return error.code() == ErrorCode::kRankLost && error.rank() == victim ? kWasTold : kOtherError;
  }
  return kNoError;
}

// The victim has launched so many operations when it is stopped.
void stop_and_continue(int victim, const std::string& fault, uint64_t launches) {
  const RankProcesses ranks(kRanks, [&](int rank, uint16_t port) {
    return run_stopped_rank(rank, port, victim, fault, launches);
  });
  CHECK(WIFSTOPPED(ranks.await(victim, WUNTRACED)));
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != victim) ranks.expect_exit(rank, kWasTold);
  }
  CHECK_EQ(kill(ranks.pid(victim), SIGCONT), 0);
  ranks.expect_exit(victim, kWasTold);
}

}  // namespace

TEST(a_rank_that_was_given_up_reports_no_success) {
  stop_and_continue(1, "stop-query stream=2 times=1", kStoppedAt + 1);
}

TEST(a_rank_that_was_given_up_puts_nothing_on_its_gpu) {
  stop_and_continue(1, "stop-wait times=1", kStoppedAt);
}

// The others watch it, and it watches them, in another way.
TEST(the_first_rank_reports_no_success_either) {
  stop_and_continue(0, "stop-query stream=2 times=1", kStoppedAt + 1);
}

TEST(the_first_rank_puts_nothing_on_its_gpu_either) {
  stop_and_continue(0, "stop-wait times=1", kStoppedAt);
}
