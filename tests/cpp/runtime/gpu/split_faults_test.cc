// A rank that fails in each part of an allreduce that is split at hosts: what the others say.
#include <signal.h>

#include <random>

#include "rank_processes.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kSplitRanks = 4;
constexpr int kSplitSteps = 10;
constexpr int kKernelsOfStep = 4;  // of NCCL on each rank: two for each of two allreduces

// Exit codes of a rank.
constexpr int kNoFailure = 16;
constexpr int kToldOfCulprit = 17;
constexpr int kToldOfAnother = 18;

struct SplitFault {
  std::string text;  // on the culprit only
  int culprit;
  bool strikes;
  bool kills;
};

void sum_twice(Runtime& runtime, const Device& device, const GpuTensorPair& first,
               const GpuTensorPair& second) {
  run_plain_and_scaled(runtime, device, first, second);
  CHECK(first.output() == floats(4.0F).bytes);
  CHECK(second.output() == floats(2.0F).bytes);
}

// Runs `sums` as one of the ranks; `fault` strikes on this one.
template <typename Sums>
int run_split_rank(int rank, uint16_t port, const std::string& fault, int culprit, Sums sums) {
  Fake::get();  // its settings come before the library
  const Device device(rank);
  JobOptions job{.size = kSplitRanks, .hosts = 2};
  job.setting.hierarchical_allreduce = true;
  Runtime runtime(
      with_gpu(runtime_options(job, rank, port), GpuBits::kNccl, std::chrono::seconds(30)));
  int code = kNoFailure;
  try {
    CHECK_EQ(Fake::get().set_faults(fault.c_str()), 0);
    sums(runtime, device);
  } catch (const Error& error) {
    const bool own = rank == culprit;
    const bool right = error.code() == (own ? ErrorCode::kInternal : ErrorCode::kRankLost) &&
                       error.rank() == culprit;
    if (!right) std::cerr << fault << ", rank " << rank << ": " << error.what() << std::endl;
    code = right ? kToldOfCulprit : kToldOfAnother;
  }
  runtime.shutdown();
  GpuJob::check_order();
  return code;
}

void run_split_steps(Runtime& runtime, const Device& device) {
  const GpuTensorPair first(device, floats(1.0F));
  const GpuTensorPair second(device, floats(1.0F));
  for (int step = 0; step < kSplitSteps; ++step) sum_twice(runtime, device, first, second);
}

void check_split_fault(const SplitFault& fault) {
  const RankProcesses ranks(kSplitRanks, [&](int rank, uint16_t port) {
    const std::string own = rank == fault.culprit ? fault.text : "";
    return run_split_rank(rank, port, own, fault.culprit, run_split_steps);
  });
  for (int rank = 0; rank < kSplitRanks; ++rank) {
    if (rank == fault.culprit && fault.kills) continue;
    ranks.expect_exit(rank, fault.strikes ? kToldOfCulprit : kNoFailure);
  }
  if (!fault.kills) return;
  const int status = ranks.await(fault.culprit);
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(WTERMSIG(status), SIGKILL);
}

// The first on the second host.
void check_error(const char* fault) { check_split_fault({fault, 2, true, false}); }
void check_kill(const char* fault) { check_split_fault({fault, 2, true, true}); }

SplitFault random_split_fault(std::mt19937& random) {
  const auto below = [&](unsigned end) { return std::to_string(random() % end); };
  const std::string at =
      " op=" + std::to_string(1 + random() % ((kSplitSteps - 2) * kKernelsOfStep));
  const int culprit = static_cast<int>(random() % kSplitRanks);
  switch (random() % 6) {
    case 0:
      return {"late-peer" + at + " ms=" + below(100), culprit, false, false};
    case 1:
      return {"slow-launch ms=" + below(10), culprit, false, false};
    case 2:
      return {"async-error code=1" + at, culprit, true, false};
    case 3:
      return {"late-peer ms=" + below(50) + at + "; async-error code=1" + at, culprit, true, false};
    case 4:
      return {"async-error code=3" + at + "; slow-abort ms=" + below(300), culprit, true, false};
    default:
      return {"late-peer ms=" + below(50) + at + "; kill" + at, culprit, true, true};
  }
}

}  // namespace

TEST(a_rank_that_is_killed_while_its_host_reduces_is_named_by_all) { check_kill("kill op=5"); }

// The other host has its sum by then, and waits for this one's.
TEST(a_rank_that_is_killed_while_the_other_host_waits_for_its_share_is_named_by_all) {
  check_kill("late-peer op=5 ms=200; kill op=5");
}

TEST(a_rank_that_is_killed_while_its_host_gathers_is_named_by_all) { check_kill("kill op=6"); }

TEST(an_error_of_nccl_while_a_host_reduces_names_its_rank) {
  check_error("async-error op=5 code=1");
}

TEST(an_error_of_nccl_while_the_other_host_waits_names_its_rank) {
  check_error("late-peer op=5 ms=200; async-error op=5 code=1");
}

TEST(an_error_of_nccl_while_a_host_gathers_names_its_rank) {
  check_error("async-error op=6 code=1");
}

TEST(a_communicator_of_a_host_that_is_refused_ends_the_job) { check_error("refuse-init code=3"); }

// The first host has given the first chunk's result to its GPUs, where it fails, and waits for its
// second chunk's shares from the other host, whose GPU never comes to it.
TEST(an_error_of_nccl_ends_the_wait_for_another_host) {
  constexpr int64_t kCount = kHostChunkBytes / sizeof(float) + 1;
  const auto sum_two_chunks = [](Runtime& runtime, const Device& device) {
    const GpuTensorPair tensor(
        device, values_of(DType::kFloat32, std::vector<float>(static_cast<size_t>(kCount), 1.0F)));
    Request request = sum_of("large");
    request.tensors = {{DType::kFloat32, {kCount}}};
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {tensor.memory()}));
    finish(runtime, runtime.submit(std::move(one))[0]);
  };
  const RankProcesses ranks(kSplitRanks, [&](int rank, uint16_t port) {
    const char* fault = rank == 0   ? "async-error op=3 code=1"
                        : rank == 2 ? "late-peer op=2 ms=-1"
                                    : "";
    return run_split_rank(rank, port, fault, 0, sum_two_chunks);
  });
  for (int rank = 0; rank < kSplitRanks; ++rank) ranks.expect_exit(rank, kToldOfCulprit);
}

TEST(random_faults_of_one_rank_are_told_by_all_or_do_no_harm) {
  std::mt19937 random(20261126);
  for (int i = 0; i < cases(6); ++i) check_split_fault(random_split_fault(random));
}
