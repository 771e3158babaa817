// What the caller's thread and its stream see of an operation on a GPU.
#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

std::vector<Submission> one_of(Submission submission) {
  std::vector<Submission> one;
  one.push_back(std::move(submission));
  return one;
}

Error refusal(Runtime& runtime, Submission submission) {
  try {
    runtime.submit(one_of(std::move(submission)));
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "it was not refused"};
}

}  // namespace

TEST(a_stream_waits_where_the_host_does_not) {
  GpuJob job({.size = 2});
  // The communicator is there before streams stand still.
  job.each([](Runtime& runtime, const Device& device, int) {
    run_one(runtime, device, sum_of("first"), floats(1.0F));
  });
  Fake::get().pause(1);
  std::vector<Handle> handles(2);
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(2);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = std::make_unique<GpuTensorPair>(device, floats(1.0F));
    handles[index] =
        runtime.submit(one_of(on_gpu(device, sum_of("x"), {tensors[index]->memory()})))[0];
    CHECK(runtime.wait_on_stream(handles[index], device.stream(), std::chrono::seconds(60)));
    CHECK(!runtime.poll(handles[index]));
  });
  Fake::get().pause(0);
  job.each([&](Runtime& runtime, const Device&, int rank) {
    const auto index = static_cast<size_t>(rank);
    // The caller's stream is behind it, which is all that was asked for.
    const Values twos = floats(2.0F);
    CHECK(tensors[index]->output() == twos.bytes);
    finish(runtime, handles[index]);
  });
}

TEST(a_name_is_free_again_once_its_operation_is_on_the_stream) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int) {
    run_one(runtime, device, sum_of("first"), floats(1.0F));
  });
  Fake::get().pause(1);
  std::vector<std::vector<Handle>> handles(2);
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(2);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = std::make_unique<GpuTensorPair>(device, floats(1.0F));
    for (int turn = 0; turn < 3; ++turn) {
      handles[index].push_back(
          runtime.submit(one_of(on_gpu(device, sum_of("x"), {tensors[index]->in_place()})))[0]);
      CHECK(
          runtime.wait_on_stream(handles[index].back(), device.stream(), std::chrono::seconds(60)));
    }
    for (const Handle handle : handles[index]) CHECK(!runtime.poll(handle));
  });
  Fake::get().pause(0);
  job.each([&](Runtime& runtime, const Device&, int rank) {
    const auto index = static_cast<size_t>(rank);
    const Values eights = floats(8.0F);
    CHECK(tensors[index]->input() == eights.bytes);
    for (const Handle handle : handles[index]) finish(runtime, handle);
  });
}

TEST(a_host_that_runs_far_ahead_of_its_gpu_waits_for_room) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int) {
    run_one(runtime, device, sum_of("first"), floats(0.0F));
  });
  Fake::get().pause(1);
  std::vector<std::vector<Handle>> handles(2);
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(2);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = std::make_unique<GpuTensorPair>(device, floats(0.0F));
    const auto submit = [&] {
      return runtime.submit(one_of(on_gpu(device, sum_of("x"), {tensors[index]->in_place()})))[0];
    };
    for (size_t turn = 0; turn < GpuThread::kMostFlights; ++turn) {
      handles[index].push_back(submit());
      CHECK(
          runtime.wait_on_stream(handles[index].back(), device.stream(), std::chrono::seconds(60)));
    }
    handles[index].push_back(submit());
    CHECK(!runtime.wait_on_stream(handles[index].back(), device.stream(),
                                  std::chrono::milliseconds(100)));
  });
  Fake::get().pause(0);
  job.each([&](Runtime& runtime, const Device&, int rank) {
    for (const Handle handle : handles[static_cast<size_t>(rank)]) finish(runtime, handle);
  });
}

// The stream may come to its end while others wait for room on it.
TEST(many_operations_at_once_are_all_carried_out) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int) {
    std::vector<std::unique_ptr<GpuTensorPair>> tensors;
    std::vector<Handle> handles;
    for (size_t i = 0; i < 5 * GpuThread::kMostFlights; ++i) {
      tensors.push_back(std::make_unique<GpuTensorPair>(device, floats(1.0F)));
      Request request = sum_of("parameter " + std::to_string(i));
      request.op = OpType::kBroadcast;  // each is a bucket of its own
      const TensorMemory memory = tensors.back()->in_place();
      handles.push_back(runtime.submit(one_of(on_gpu(device, request, {memory})))[0]);
    }
    for (const Handle handle : handles) finish(runtime, handle);
  });
}

TEST(ranks_that_disagree_about_the_device_are_told_so) {
  GpuJob job({.size = 3});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const Values values = floats(1.0F);
    Error error(ErrorCode::kInternal, "");
    std::vector<float> on_host(kFloats, 1.0F);
    const GpuTensorPair tensor(device, values);
    if (rank == 1) {
      error = failure_of(runtime, submit_one(runtime, allreduce_of("odd", on_host)));
    } else {
      error = failure_of(
          runtime, runtime.submit(one_of(on_gpu(device, sum_of("odd"), {tensor.memory()})))[0]);
    }
    CHECK(error.code() == ErrorCode::kMismatch);
    CHECK(contains(error.what(),
                   "ranks 0, 2 announced allreduce(sum) float32 [1000] on a GPU, "
                   "rank 1 announced allreduce(sum) float32 [1000];"));
    CHECK(contains(error.what(), "in host memory on all ranks or on GPUs on all ranks"));
    run_one(runtime, device, sum_of("odd"), values);
  });
}

TEST(ranks_with_different_bits_are_told_so) {
  Setting hierarchical;
  hierarchical.hierarchical_allreduce = true;
  for (const GpuJobOptions& options :
       {GpuJobOptions{.size = 2, .exact_rank = 1},
        // Where the others split an allreduce at hosts, and the one does not.
        GpuJobOptions{.size = 4, .hosts = 2, .exact_rank = 3, .setting = hierarchical}}) {
    GpuJob job(options);
    job.each([](Runtime& runtime, const Device& device, int) {
      const GpuTensorPair tensor(device, floats(1.0F));
      const Handle handle =
          runtime.submit(one_of(on_gpu(device, sum_of("x"), {tensor.memory()})))[0];
      const Error error = failure_of(runtime, handle);
      CHECK(contains(error.what(), "HVDTUNE_GPU_BITS differs between ranks: it is "));
    });
  }
}

TEST(tensors_of_both_kinds_share_no_bucket) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int) {
    const GpuTensorPair tensor(device, floats(1.0F));
    std::vector<float> on_host(kFloats, 1.0F);
    std::vector<Submission> both;
    both.push_back(on_gpu(device, sum_of("gpu"), {tensor.memory()}));
    both.push_back(allreduce_of("host", on_host).done());
    for (const Handle handle : runtime.submit(std::move(both))) finish(runtime, handle);
    CHECK_EQ(on_host[999], 2.0F);
    const Values twos = floats(2.0F);
    CHECK(tensor.output() == twos.bytes);
  });
}

TEST(a_second_gpu_of_a_rank_is_refused) {
  GpuJob job({.size = 1});
  const Device other(3);
  run_one(job[0], job.device(0), sum_of("x"), floats(1.0F));
  const GpuTensorPair tensor(other, floats(1.0F));
  const Error error = refusal(job[0], on_gpu(other, sum_of("x"), {tensor.memory()}));
  CHECK(error.code() == ErrorCode::kUsage);
  CHECK(contains(error.what(), "it is on GPU 3, but this rank's first tensor was on GPU 0"));
}

TEST(what_gpus_do_not_offer_is_refused_at_once) {
  GpuJob job({.size = 1});
  const Device& device = job.device(0);
  const GpuTensorPair tensor(device, floats(1.0F));
  Request adasum = sum_of("adasum");
  adasum.reduce_op = ReduceOp::kAdasum;
  CHECK(contains(refusal(job[0], on_gpu(device, adasum, {tensor.memory()})).what(),
                 "Adasum is not supported on GPUs"));
  Submission nowhere = on_gpu(device, sum_of("x"), {tensor.memory()});
  nowhere.gpu.number = -1;
  CHECK(contains(refusal(job[0], std::move(nowhere)).what(), "the number of its GPU is unknown"));
  Submission barrier = on_gpu(device, plain(OpType::kBarrier, "b").request, {});
  CHECK(contains(refusal(job[0], std::move(barrier)).what(),
                 "an operation without tensors cannot be on a GPU"));
}

TEST(a_job_without_gpu_operations_says_how_to_get_them) {
  Job job({.size = 1});
  const Device device(0);
  const GpuTensorPair tensor(device, floats(1.0F));
  const Error error = refusal(job[0], on_gpu(device, sum_of("x"), {tensor.memory()}));
  CHECK(error.code() == ErrorCode::kUsage);
  CHECK(contains(error.what(), "HVDTUNE_GPU_OPERATIONS=nccl"));
}
