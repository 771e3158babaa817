// Operations that are captured into CUDA graphs, and run when these are launched.
#include <utility>

#include "fake_cuda.h"
#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr std::chrono::seconds kLong{60};

void ok(CUresult result) { CHECK_EQ(result, CUDA_SUCCESS); }

CUstream stream_of(const Device& device) { return reinterpret_cast<CUstream>(device.stream()); }

// What `body` gives to the rank's stream, and has submitted from it.
class Graph {
 public:
  template <typename Body>
  Graph(Runtime& runtime, const Device& device, Body body) : runtime_(runtime), device_(device) {
    const Gpu::Scope scope(*device.gpu());
    CHECK(runtime.begin_capture(kLong));
    ok(cuStreamBeginCapture_v2(stream_of(device), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    body();
    while (!runtime.end_capture(kLong)) {
    }
    CUgraph graph = nullptr;
    ok(cuStreamEndCapture(stream_of(device), &graph));
    ok(cuGraphInstantiateWithFlags(&exec_, graph, 0));
    ok(cuGraphDestroy(graph));
  }
  ~Graph() { destroy(); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void replay() const {
    const Gpu::Scope scope(*device_.gpu());
    CHECK(runtime_.before_replay(device_.stream(), kLong));
    ok(cuGraphLaunch(exec_, stream_of(device_)));
    runtime_.after_replay(device_.stream());
  }
  void destroy() {
    const Gpu::Scope scope(*device_.gpu());
    if (exec_ != nullptr) ok(cuGraphExecDestroy(std::exchange(exec_, nullptr)));
  }

 private:
  Runtime& runtime_;
  const Device& device_;
  CUgraphExec exec_ = nullptr;
};

// Submits it from the device's stream, which waits for it.
void run_behind(Runtime& runtime, const Device& device, const Request& request,
                const GpuTensorPair& tensor) {
  std::vector<Submission> one;
  one.push_back(on_gpu(device, request, {tensor.in_place()}));
  const Handle handle = runtime.submit(std::move(one))[0];
  CHECK(runtime.wait_on_stream(handle, device.stream(), kLong));
  finish(runtime, handle);
}

Error refusal(Runtime& runtime, const Device& device, const Request& request,
              const GpuTensorPair& tensor) {
  try {
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {tensor.memory()}));
    runtime.submit(std::move(one));
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "it was not refused"};
}

void warm_up(GpuJob& job) {
  job.each([](Runtime& runtime, const Device& device, int) {
    run_one(runtime, device, sum_of("first"), floats(1.0F));
  });
}

float first_of(const GpuTensorPair& tensor) {
  float value = 0;
  std::memcpy(&value, tensor.input().data(), sizeof value);
  return value;
}

// A graph on each rank whose kernel on rank 1 never begins, so that rank 0's never ends by itself.
struct EndlessGraphs {
  explicit EndlessGraphs(const std::string& faults) : job({.size = 2}), tensors(2), graphs(2) {
    warm_up(job);
    job.each([&](Runtime& runtime, const Device& device, int rank) {
      auto& tensor = tensors[static_cast<size_t>(rank)];
      const std::vector<float> ones(2 * kFloats, 1.0F);
      tensor = std::make_unique<GpuTensorPair>(device, values_of(DType::kFloat32, ones));
      graphs[static_cast<size_t>(rank)] = std::make_unique<Graph>(
          runtime, device, [&] { run_behind(runtime, device, sum_of("sum"), *tensor); });
    });
    CHECK_EQ(Fake::get().set_faults(("late-peer rank=1 ms=-1; " + faults).c_str()), 0);
    job.each([&](Runtime&, const Device&, int rank) { graph(rank).replay(); });
  }

  const Graph& graph(int rank) const { return *graphs[static_cast<size_t>(rank)]; }
  // Behind the graph, with as much memory of hvdtune's own.
  Handle scale(int rank, size_t count) {
    Request scaled = sum_of("scaled " + std::to_string(count));
    scaled.tensors = {{DType::kFloat32, {static_cast<int64_t>(count)}}};
    scaled.prescale = 2.0;
    std::vector<Submission> one;
    one.push_back(
        on_gpu(job.device(rank), scaled, {tensors[static_cast<size_t>(rank)]->in_place()}));
    return job[rank].submit(std::move(one))[0];
  }
  void expect_failure_of_rank_0(int rank, Handle handle) {
    CHECK_EQ(failure_of(job[rank], handle).rank(), 0);
    job.device(rank).await();
    try {
      graph(rank).replay();
      CHECK(false);
    } catch (const Error& error) {
      CHECK_EQ(error.rank(), 0);
    }
  }

  GpuJob job;
  std::vector<std::unique_ptr<GpuTensorPair>> tensors;
  std::vector<std::unique_ptr<Graph>> graphs;
};

}  // namespace

TEST(a_captured_sum_is_computed_at_each_launch) {
  for (const GpuBits bits : {GpuBits::kNccl, GpuBits::kExact}) {
    GpuJob job({.size = 2, .bits = bits});
    warm_up(job);
    job.each([](Runtime& runtime, const Device& device, int) {
      const GpuTensorPair tensor(device, floats(1.0F));
      Request scaled = sum_of("scaled");  // its memory is packed, by hvdtune's kernels
      scaled.prescale = 0.5;
      scaled.postscale = 4.0;
      const Graph graph(runtime, device, [&] {
        run_behind(runtime, device, sum_of("sum"), tensor);
        run_behind(runtime, device, scaled, tensor);
      });
      CHECK_EQ(first_of(tensor), 1.0F);
      for (int launch = 0; launch < 3; ++launch) graph.replay();
      // Each of them doubles, and then quadruples.
      CHECK_EQ(first_of(tensor), 512.0F);
      runtime.check_gpu();
    });
  }
}

TEST(a_launch_has_its_place_among_other_operations) {
  GpuJob job({.size = 2});
  warm_up(job);
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const GpuTensorPair captured(device, floats(1.0F));
    const GpuTensorPair other(device, floats(1.0F));
    const Graph graph(runtime, device,
                      [&] { run_behind(runtime, device, sum_of("sum"), captured); });
    // The ranks wait at other places, and for nothing on the host.
    std::vector<Handle> handles;
    for (int step = 0; step < 20; ++step) {
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("sum " + std::to_string(step)), {other.in_place()}));
      handles.push_back(runtime.submit(std::move(one))[0]);
      if (rank == step % 2) std::this_thread::yield();
      graph.replay();
    }
    for (const Handle handle : handles) finish(runtime, handle);
    CHECK_EQ(first_of(captured), static_cast<float>(1 << 20));
    CHECK_EQ(first_of(other), static_cast<float>(1 << 20));
  });
}

TEST(what_no_graph_can_have_is_refused) {
  GpuJob job({.size = 1});
  Runtime& runtime = job[0];
  const Device& device = job.device(0);
  const GpuTensorPair tensor(device, floats(1.0F));
  const Gpu::Scope scope(*device.gpu());
  const auto captured = [&](const Request& request) {
    ok(cuStreamBeginCapture_v2(stream_of(device), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    const Error error = refusal(runtime, device, request, tensor);
    CUgraph graph = nullptr;
    ok(cuStreamEndCapture(stream_of(device), &graph));
    ok(cuGraphDestroy(graph));
    CHECK(error.code() == ErrorCode::kUsage);
    return std::string(error.what());
  };
  CHECK(contains(captured(sum_of("x")),
                 "tensor \"x\": its stream is being captured into a CUDA "
                 "graph, which would hide failures"));
  CHECK(runtime.begin_capture(kLong));
  CHECK(contains(captured(sum_of("x")), "its process set has no NCCL communicator yet"));
  try {
    CHECK(runtime.begin_capture(kLong));
    CHECK(false);
  } catch (const Error& error) {
    CHECK(contains(error.what(), "another CUDA graph is being captured"));
  }
  CHECK(runtime.end_capture(kLong));
  run_one(runtime, device, sum_of("x"), floats(1.0F));
  CHECK(runtime.begin_capture(kLong));
  Request gather = sum_of("rows");
  gather.op = OpType::kAllgather;
  CHECK(
      contains(captured(gather), "the size of the result of allgather is known only when it runs"));
  CHECK(runtime.end_capture(kLong));
}

TEST(ranks_of_which_one_captures_are_told_so) {
  GpuJob job({.size = 2});
  warm_up(job);
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const GpuTensorPair tensor(device, floats(1.0F));
    const auto run = [&] {
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("odd"), {tensor.memory()}));
      const Error error = failure_of(runtime, runtime.submit(std::move(one))[0]);
      CHECK(error.code() == ErrorCode::kMismatch);
      CHECK(contains(error.what(), "in a CUDA graph"));
      CHECK(contains(error.what(), "on all ranks or on none"));
    };
    if (rank == 0) return run();
    const Graph graph(runtime, device, run);
  });
}

// CUDA ends a capture in which another thread asks or allocates, unless that says that it may.
TEST(operations_in_flight_do_not_disturb_a_capture) {
  GpuJob job({.size = 1});
  Runtime& runtime = job[0];
  const Device& device = job.device(0);
  run_one(runtime, device, sum_of("first"), floats(1.0F));
  const Device other(0);
  const GpuTensorPair tensor(other, floats(1.0F));
  other.await();
  Fake::get().pause(1);
  std::vector<Submission> one;
  one.push_back(on_gpu(other, sum_of("second"), {tensor.memory()}));
  const Handle handle = runtime.submit(std::move(one))[0];
  CHECK(runtime.begin_capture(kLong));  // it is on the GPU now
  const Gpu::Scope scope(*device.gpu());
  ok(cuStreamBeginCapture_v2(stream_of(device), CU_STREAM_CAPTURE_MODE_GLOBAL));
  Fake::get().pause(0);
  finish(runtime, handle);
  CHECK(runtime.end_capture(kLong));
  CUgraph graph = nullptr;
  ok(cuStreamEndCapture(stream_of(device), &graph));
  ok(cuGraphDestroy(graph));
}

TEST(a_failure_while_a_graph_runs_is_told_before_the_next_launch) {
  GpuJob job({.size = 2});
  warm_up(job);
  CHECK_EQ(Fake::get().set_faults("async-error rank=1 op=4 code=1"), 0);
  job.each([&](Runtime& runtime, const Device& device, int) {
    const GpuTensorPair tensor(device, floats(1.0F));
    const Graph graph(runtime, device, [&] { run_behind(runtime, device, sum_of("sum"), tensor); });
    try {
      for (;;) graph.replay();
    } catch (const Error& error) {
      CHECK_EQ(error.rank(), 1);
    }
  });
}

TEST(a_graph_that_cannot_end_is_given_up_when_the_job_is) {
  // Memory that is not there ends the job, as anything else would.
  EndlessGraphs endless("out-of-memory device=0");
  endless.job.each([&](Runtime&, const Device&, int rank) {
    endless.expect_failure_of_rank_0(rank, endless.scale(rank, kFloats));
  });
}

// NCCL has rank 1's operation when the job ends, and puts it on the stream only then.
TEST(memory_is_kept_until_nccl_has_launched_what_it_was_given) {
  EndlessGraphs endless("late-launch rank=1 ms=500 times=1");
  endless.job.each([&](Runtime&, const Device&, int rank) {
    endless.scale(rank, kFloats);
    while (Fake::get().faults_hit("late-launch") == 0) std::this_thread::yield();
    if (rank == 0) CHECK_EQ(Fake::get().set_faults("out-of-memory device=0"), 0);
    endless.expect_failure_of_rank_0(rank, endless.scale(rank, 2 * kFloats));
  });
}

TEST(a_job_ends_while_graphs_are_there_and_they_later) {
  GpuJob job({.size = 2});
  warm_up(job);
  job.each([](Runtime& runtime, const Device& device, int) {
    const GpuTensorPair tensor(device, floats(1.0F));
    Request scaled = sum_of("scaled");
    scaled.prescale = 2.0;
    Graph graph(runtime, device, [&] { run_behind(runtime, device, scaled, tensor); });
    graph.replay();
    device.await();
    runtime.shutdown();
    graph.destroy();
  });
}
