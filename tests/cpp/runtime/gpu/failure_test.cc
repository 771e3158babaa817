// What becomes of operations on GPUs when NCCL, a GPU or a rank fails.
#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

void run_sum(Runtime& runtime, const Device& device, const std::string& name) {
  const Values twos = floats(2.0F);
  CHECK(run_one(runtime, device, sum_of(name), floats(1.0F)) == twos.bytes);
}

// Sums until one fails; what it failed with.
Error failure_of_sums(Runtime& runtime, const Device& device) {
  const GpuTensorPair tensor(device, floats(1.0F));
  try {
    for (int step = 0; step < 100; ++step) {
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("doomed"), {tensor.memory()}));
      finish(runtime, runtime.submit(std::move(one))[0]);
    }
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "nothing failed"};
}

// Every rank says that rank 1 is at fault.
void expect_failure(const char* fault) {
  GpuJob job({.size = 2});
  CHECK_EQ(Fake::get().set_faults(fault), 0);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const Error error = failure_of_sums(runtime, device);
    CHECK(error.code() == (rank == 1 ? ErrorCode::kInternal : ErrorCode::kRankLost));
    CHECK_EQ(error.rank(), 1);
    CHECK(contains(error.what(), "rank 1 failed"));
  });
  Fake::get().set_faults("");
}

}  // namespace

TEST(an_error_on_one_rank_reaches_all_and_names_it) {
  expect_failure("async-error rank=1 op=5 code=1");
}

TEST(a_communicator_that_is_refused_ends_the_job) { expect_failure("refuse-init rank=1 code=3"); }

TEST(memory_that_is_not_there_ends_the_job) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    run_sum(runtime, device, "first");
    const GpuTensorPair tensor(device, floats(1.0F));
    finish(runtime, submit_one(runtime, barrier_of("both have theirs")));
    if (rank == 1) Fake::get().set_faults("out-of-memory device=1");
    finish(runtime, submit_one(runtime, barrier_of("it is set")));
    Request scaled = sum_of("scaled");
    scaled.prescale = 2.0;  // needs memory of hvdtune's own
    std::vector<Submission> one;
    one.push_back(on_gpu(device, scaled, {tensor.memory()}));
    const Error error = failure_of(runtime, runtime.submit(std::move(one))[0]);
    CHECK_EQ(error.rank(), 1);
    CHECK(contains(error.what(), "rank 1 failed: cannot allocate 1 MiB on GPU 1"));
  });
}

// What joining and giving up may do besides, each while the other rank's error ends the job.
TEST(an_abort_ends_what_nccl_is_slow_at) {
  expect_failure("async-error rank=1 op=2 code=1; slow-abort ms=300");
  expect_failure("refuse-init rank=1 code=3; never-ready rank=0");
  expect_failure("async-error rank=1 op=2 code=1; slow-launch rank=0 ms=300");
}

// Kernels of one wait behind kernels of the other, on streams and on the device.
TEST(communicators_of_several_process_sets_are_given_up_together) {
  GpuJob job({.size = 3});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const auto done = finish(runtime, submit_one(runtime, plain(OpType::kAddSet, "add", {1, 2})));
    const auto set = static_cast<uint32_t>(done->numbers[0]);
    const GpuTensorPair tensor(device, floats(1.0F));
    const GpuTensorPair other(device, floats(1.0F));
    const auto submit = [&](uint32_t where, const GpuTensorPair& with) {
      Request request = sum_of("in set " + std::to_string(where));
      request.process_set = where;
      std::vector<Submission> one;
      one.push_back(on_gpu(device, request, {with.memory()}));
      return runtime.submit(std::move(one))[0];
    };
    finish(runtime, submit(kWorldSet, tensor));
    if (rank > 0) finish(runtime, submit(set, other));
    // The fake means a communicator's rank: no rank but the job's last has this number in one.
    if (rank == 2) Fake::get().set_faults("async-error rank=2 op=3 code=1");
    finish(runtime, submit_one(runtime, barrier_of("it is set")));
    try {
      for (int step = 0; step < 10; ++step) {
        const Handle first = submit(kWorldSet, tensor);
        if (rank > 0) finish(runtime, submit(set, other));
        finish(runtime, first);
      }
    } catch (const Error& error) {
      CHECK_EQ(error.rank(), 2);
      return;
    }
    CHECK(false);
  });
}

TEST(a_job_can_be_formed_anew_after_a_failure) {
  for (int generation = 0; generation < 3; ++generation) {
    expect_failure("async-error rank=1 op=3 code=1");
    GpuJob job({.size = 2});
    job.each(
        [](Runtime& runtime, const Device& device, int) { run_sum(runtime, device, "again"); });
  }
}

// The other rank's part of the operation never comes, so that only an abort ends it.
TEST(a_rank_that_leaves_ends_what_the_others_have_in_flight) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    run_sum(runtime, device, "first");
    if (rank == 1) return runtime.shutdown();
    const GpuTensorPair tensor(device, floats(1.0F));
    std::vector<Submission> one;
    one.push_back(on_gpu(device, sum_of("alone"), {tensor.memory()}));
    try {
      const Error error = failure_of(runtime, runtime.submit(std::move(one))[0]);
      CHECK_EQ(error.rank(), 1);
    } catch (const Error& error) {
      CHECK_EQ(error.rank(), 1);
    }
  });
}

// Every kernel of NCCL on rank 1 waits for ever, as if its GPU did not come to it.
TEST(an_operation_that_never_ends_is_given_up_when_the_job_is) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int) { run_sum(runtime, device, "first"); });
  CHECK_EQ(Fake::get().set_faults("late-peer rank=1 ms=-1"), 0);
  std::vector<Handle> handles(2);
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(2);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = std::make_unique<GpuTensorPair>(device, floats(1.0F));
    std::vector<Submission> one;
    one.push_back(on_gpu(device, sum_of("stuck"), {tensors[index]->memory()}));
    handles[index] = runtime.submit(std::move(one))[0];
    CHECK(runtime.wait_on_stream(handles[index], device.stream(), std::chrono::seconds(60)));
    CHECK(!runtime.poll(handles[index]));
  });
  // Memory that is not there ends the job, as anything else would.
  std::vector<std::unique_ptr<GpuTensorPair>> others(2);
  for (size_t rank = 0; rank < 2; ++rank) {
    others[rank] =
        std::make_unique<GpuTensorPair>(job.device(static_cast<int>(rank)), floats(1.0F));
  }
  Fake::get().set_faults("out-of-memory device=0; late-peer rank=1 ms=-1");
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    Request scaled = sum_of("scaled");
    scaled.prescale = 2.0;
    std::vector<Submission> one;
    one.push_back(on_gpu(device, scaled, {others[index]->memory()}));
    const Handle handle = runtime.submit(std::move(one))[0];
    CHECK(contains(failure_of(runtime, handle).what(), "rank 0 failed"));
    const Error error = failure_of(runtime, handles[index]);
    CHECK(contains(error.what(), "rank 0 failed"));
    CHECK_EQ(error.rank(), 0);
  });
}
