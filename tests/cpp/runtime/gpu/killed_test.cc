// A rank's process that is killed inside a kernel of NCCL, and what the others say.
#include <signal.h>

#include "rank_processes.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kSize = 3;
constexpr int kVictim = 1;

// The exit code of a rank: 0 when it was told that the victim was lost.
int run_killed_rank(int rank, uint16_t port) {
  Fake::get();  // its settings come before the library
  Fake::get().set_faults(("kill rank=" + std::to_string(kVictim) + " op=4").c_str());
  const Device device(rank);
  const JobOptions job{.size = kSize};
  Runtime runtime(
      with_gpu(runtime_options(job, rank, port), GpuBits::kNccl, std::chrono::seconds(30)));
  const GpuTensorPair tensor(device, floats(1.0F));
  try {
    for (int step = 0; step < 10; ++step) {
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("x"), {tensor.memory()}));
      finish(runtime, runtime.submit(std::move(one))[0]);
    }
  } catch (const Error& error) {
    return error.code() == ErrorCode::kRankLost && error.rank() == kVictim ? 0 : 2;
  }
  return 3;
}

}  // namespace

TEST(a_rank_that_is_killed_in_a_kernel_is_named_by_all_others) {
  const RankProcesses ranks(kSize, run_killed_rank);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != kVictim) ranks.expect_exit(rank, 0);
  }
  const int status = ranks.await(kVictim);
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGKILL);
}
