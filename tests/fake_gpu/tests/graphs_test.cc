// Streams that are captured, the graphs that come of it, and what is found in their use.
#include "ranks.h"

using namespace fake_gpu_tests;

namespace {

void capture(CUstream stream, int mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  ok(cuStreamBeginCapture_v2(stream, mode));
}

// A graph that can be launched, of what was captured on the stream.
CUgraphExec captured(CUstream stream) {
  CUgraph graph = nullptr;
  ok(cuStreamEndCapture(stream, &graph));
  CUgraphExec exec = nullptr;
  ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
  ok(cuGraphDestroy(graph));
  return exec;
}

CUevent new_event() {
  CUevent event = nullptr;
  ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  return event;
}

int status_of(CUstream stream) {
  int status = -1;
  ok(cuStreamIsCapturing(stream, &status));
  return status;
}

// Two streams, and memory of 1000 bytes twice.
struct Bench {
  Bench() {
    use_device(0);
    fakeGpuReset();
    first = new_stream();
    second = new_stream();
    memory = on_device(std::vector<uint8_t>(1000, 1), first);
    copy = on_device(std::vector<uint8_t>(1000, 2), first);
    ok(cuStreamSynchronize(first));
  }
  ~Bench() {
    ok(cuCtxSynchronize());
    ok(cuMemFree_v2(memory));
    ok(cuMemFree_v2(copy));
    ok(cuStreamDestroy_v2(first));
    ok(cuStreamDestroy_v2(second));
  }
  // The second stream copies what the first sets, behind an event if `ordered`.
  void fork(bool ordered, bool joins) {
    const CUevent begun = new_event();
    ok(cuEventRecord(begun, first));
    ok(cuMemsetD8Async(memory, 7, 1000, first));
    const CUevent set = new_event();
    ok(cuEventRecord(set, first));
    ok(cuStreamWaitEvent(second, ordered ? set : begun, 0));
    ok(cuMemcpyDtoDAsync_v2(copy, memory, 1000, second));
    const CUevent copied = new_event();
    ok(cuEventRecord(copied, second));
    if (joins) ok(cuStreamWaitEvent(first, copied, 0));
  }

  CUstream first = nullptr;
  CUstream second = nullptr;
  CUdeviceptr memory = 0;
  CUdeviceptr copy = 0;
};

}  // namespace

TEST(what_is_captured_runs_at_each_launch_and_not_before) {
  Bench bench;
  capture(bench.first);
  CHECK_EQ(status_of(bench.first), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  bench.fork(true, true);
  CHECK_EQ(status_of(bench.second), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CUgraphExec exec = captured(bench.first);
  CHECK_EQ(status_of(bench.first), CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_EQ(status_of(bench.second), CU_STREAM_CAPTURE_STATUS_NONE);
  CHECK_EQ(from_device<uint8_t>(bench.copy, 1000, bench.first)[999], 2);
  for (int launch = 0; launch < 3; ++launch) {
    ok(cuMemsetD8Async(bench.copy, 3, 1000, bench.first));
    ok(cuGraphLaunch(exec, bench.first));
    CHECK_EQ(from_device<uint8_t>(bench.copy, 1000, bench.first)[999], 7);
  }
  ok(cuGraphExecDestroy(exec));
  no_violations();
}

TEST(a_stream_that_joined_a_capture_has_to_come_back) {
  Bench bench;
  capture(bench.first);
  bench.fork(true, false);
  CUgraph graph = nullptr;
  CHECK_EQ(cuStreamEndCapture(bench.first, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK_EQ(status_of(bench.second), CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST(a_race_within_a_graph_is_found_when_it_is_launched) {
  Bench bench;
  capture(bench.first);
  bench.fork(false, true);
  CUgraphExec exec = captured(bench.first);
  CHECK_EQ(fakeGpuViolations("race"), 0u);
  ok(cuGraphLaunch(exec, bench.first));
  CHECK_EQ(fakeGpuViolations("race"), 1u);
  ok(cuGraphExecDestroy(exec));
}

TEST(an_event_of_a_capture_cannot_be_asked_for_and_one_from_outside_not_waited_for) {
  Bench bench;
  const CUevent outside = new_event();
  ok(cuEventRecord(outside, bench.second));
  capture(bench.first, CU_STREAM_CAPTURE_MODE_RELAXED);
  CHECK_EQ(cuStreamWaitEvent(bench.first, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  const CUevent inside = new_event();
  ok(cuEventRecord(inside, bench.first));
  CHECK_EQ(cuEventSynchronize(inside), CUDA_ERROR_CAPTURED_EVENT);
  CHECK_EQ(cuStreamQuery(bench.first), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  ok(cuGraphExecDestroy(captured(bench.first)));
}

TEST(two_captures_do_not_become_one) {
  Bench bench;
  capture(bench.first, CU_STREAM_CAPTURE_MODE_RELAXED);
  capture(bench.second, CU_STREAM_CAPTURE_MODE_RELAXED);
  const CUevent event = new_event();
  ok(cuEventRecord(event, bench.first));
  CHECK_EQ(cuStreamWaitEvent(bench.second, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
  for (CUstream stream : {bench.first, bench.second}) {
    CUgraph graph = nullptr;
    CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST(another_thread_that_allocates_or_asks_ends_a_capture_unless_its_mode_is_relaxed) {
  Bench bench;
  for (const bool relaxed : {true, false}) {
    capture(bench.first);
    std::thread([&] {
      use_device(0);
      int mode = relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;
      ok(cuThreadExchangeStreamCaptureMode(&mode));
      CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
      const CUresult asked = cuStreamQuery(bench.second);
      CHECK_EQ(asked, relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }).join();
    CUgraph graph = nullptr;
    const CUresult ended = cuStreamEndCapture(bench.first, &graph);
    CHECK_EQ(ended, relaxed ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CHECK_EQ(fakeGpuViolations("capture"), relaxed ? 0u : 1u);
    if (relaxed) ok(cuGraphDestroy(graph));
  }
}

TEST(an_object_lives_as_long_as_the_last_graph_that_keeps_it_and_its_launches) {
  Bench bench;
  static std::atomic<int> destroyed;
  destroyed = 0;
  capture(bench.first);
  CUuserObject object = nullptr;
  const auto destroy = [](void*) {
    CHECK_EQ(cuStreamQuery(nullptr), CUDA_ERROR_NOT_PERMITTED);
    ++destroyed;
  };
  ok(cuUserObjectCreate(&object, nullptr, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  int status = 0;
  CUgraph graph = nullptr;
  ok(cuStreamGetCaptureInfo_v2(bench.first, &status, nullptr, &graph, nullptr, nullptr));
  ok(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  ok(cuMemsetD8Async(bench.memory, 9, 1000, bench.first));
  CUgraphExec exec = captured(bench.first);
  fakeGpuPause(1);
  ok(cuGraphLaunch(exec, bench.first));
  ok(cuGraphExecDestroy(exec));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_EQ(destroyed.load(), 0);
  fakeGpuPause(0);
  until([] { return destroyed.load() == 1; });
  CHECK_EQ(from_device<uint8_t>(bench.memory, 1000, bench.first)[999], 9);
}

TEST(a_collective_in_a_graph_moves_data_at_each_launch) {
  fakeGpuReset();
  const ncclUniqueId id = new_id();
  run_ranks(2, [&](int rank) {
    Member member(id, 2, rank);
    member.allreduce();
    capture(member.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    member.allreduce();
    CUgraphExec exec = captured(member.stream);
    for (int launch = 0; launch < 3; ++launch) ok(cuGraphLaunch(exec, member.stream));
    CHECK_EQ(from_device<float>(member.memory, 1000, member.stream)[999], 16.0f);
    ok(cuStreamSynchronize(member.stream));
    ok(cuGraphExecDestroy(exec));
    leave(member.comm);
  });
  no_violations();
}

TEST(a_communicator_does_not_end_before_the_graphs_that_use_it) {
  fakeGpuReset();
  const ncclUniqueId id = new_id();
  run_ranks(2, [&](int rank) {
    Member member(id, 2, rank);
    capture(member.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    member.allreduce();
    CUgraphExec exec = captured(member.stream);
    CHECK_EQ(ncclCommFinalize(member.comm), ncclInProgress);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_EQ(state_of(member.comm), ncclInProgress);
    ok(cuGraphExecDestroy(exec));
    ok(settled(member.comm, ncclInProgress));
    ok(ncclCommDestroy(member.comm));
  });
  no_violations();
}
