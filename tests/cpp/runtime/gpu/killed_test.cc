// A rank's process that is killed inside a kernel of NCCL, and what the others say. Ranks are made
// before the process has any thread.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kSize = 3;
constexpr int kVictim = 1;

// The exit code of a rank: 0 when it was told that the victim was lost.
int run_rank(int rank, uint16_t port) {
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
  std::array<pid_t, kSize> ranks{};
  std::array<std::array<int, 2>, kSize> pipes{};
  for (int rank = 0; rank < kSize; ++rank) {
    const auto index = static_cast<size_t>(rank);
    CHECK_EQ(pipe(pipes[index].data()), 0);
    ranks[index] = fork();
    if (ranks[index] != 0) continue;
    uint16_t port = 0;
    CHECK_EQ(read(pipes[index][0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    std::_Exit(run_rank(rank, port));
  }
  JobServer server(server_options(kSize));
  const uint16_t port = server.port();
  for (const auto& ends : pipes) {
    CHECK_EQ(write(ends[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  }
  for (int rank = 0; rank < kSize; ++rank) {
    int status = 0;
    CHECK_EQ(waitpid(ranks[static_cast<size_t>(rank)], &status, 0),
             ranks[static_cast<size_t>(rank)]);
    if (rank == kVictim) {
      CHECK(WIFSIGNALED(status));
      CHECK_EQ(WTERMSIG(status), SIGKILL);
    } else {
      CHECK(WIFEXITED(status));
      CHECK_EQ(WEXITSTATUS(status), 0);
    }
  }
}
