// Ranks as threads of one process, each with a device of its own, and what tests do on them.
#pragma once

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_gpu.h"
#include "fake_nccl.h"

namespace fake_gpu_tests {

inline void ok(CUresult result) { CHECK_EQ(result, 0); }
inline void ok(ncclResult_t result) { CHECK_EQ(result, ncclSuccess); }

// The calling thread works on that device from here on.
inline CUcontext use_device(int device) {
  ok(cuInit(0));
  CUcontext context = nullptr;
  ok(cuDevicePrimaryCtxRetain(&context, device));
  ok(cuCtxSetCurrent(context));
  return context;
}

inline CUstream new_stream() {
  CUstream stream = nullptr;
  ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

// Device memory with these values.
template <typename T>
CUdeviceptr on_device(const std::vector<T>& values, CUstream stream) {
  CUdeviceptr memory = 0;
  ok(cuMemAlloc_v2(&memory, values.size() * sizeof(T)));
  ok(cuMemcpyHtoDAsync_v2(memory, values.data(), values.size() * sizeof(T), stream));
  return memory;
}

template <typename T>
std::vector<T> from_device(CUdeviceptr memory, size_t count, CUstream stream) {
  std::vector<T> values(count);
  ok(cuMemcpyDtoHAsync_v2(values.data(), memory, count * sizeof(T), stream));
  return values;
}

inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

// Polls for as long as the test may run.
template <typename Condition>
void until(Condition condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

// Again and again, since what is to go on may not have begun to hang.
template <typename Condition>
void release_until(Condition condition) {
  until([&] {
    fakeGpuRelease();
    return condition();
  });
}

inline ncclResult_t state_of(ncclComm_t comm) {
  ncclResult_t state = ncclSuccess;
  ok(ncclCommGetAsyncError(comm, &state));
  return state;
}

inline ncclResult_t settled(ncclComm_t comm, ncclResult_t result) {
  while (result == ncclInProgress) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    result = state_of(comm);
  }
  return result;
}

inline ncclConfig_t configuration(bool blocking = false) {
  ncclConfig_t config = FAKE_NCCL_CONFIG_INITIALIZER;
  config.blocking = blocking ? 1 : 0;
  return config;
}

inline ncclUniqueId new_id() {
  ncclUniqueId id;
  ok(ncclGetUniqueId(&id));
  return id;
}

// Not yet ready.
inline ncclComm_t joining(const ncclUniqueId& id, int ranks, int rank) {
  ncclConfig_t config = configuration();
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
  CHECK(result == ncclInProgress || result == ncclSuccess);
  return comm;
}

inline ncclComm_t joined(const ncclUniqueId& id, int ranks, int rank) {
  ncclComm_t comm = joining(id, ranks, rank);
  ok(settled(comm, ncclInProgress));
  return comm;
}

inline void leave(ncclComm_t comm) {
  ok(settled(comm, ncclCommFinalize(comm)));
  ok(ncclCommDestroy(comm));
}

inline void run_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      use_device(rank);
      body(rank);
    });
  }
  for (auto& thread : threads) thread.join();
}

// A stream of the rank, one communicator with all others, and a buffer of ones.
struct Member {
  Member(const ncclUniqueId& id, int ranks, int rank, size_t count = 1000)
      : stream(new_stream()),
        comm(joined(id, ranks, rank)),
        count(count),
        memory(on_device(std::vector<float>(count, 1.0f), stream)) {}
  // In place, in float32; returns when it is on the stream.
  void allreduce() { ok(settled(comm, start_allreduce())); }
  ncclResult_t start_allreduce() {
    return ncclAllReduce(pointer(memory), pointer(memory), count, ncclFloat32, ncclSum, comm,
                         stream);
  }
  bool is_idle() { return cuStreamQuery(stream) == CUDA_SUCCESS; }

  CUstream stream;
  ncclComm_t comm;
  size_t count;
  CUdeviceptr memory;
};

inline void no_violations() {
  if (fakeGpuViolations(nullptr) != 0) std::fprintf(stderr, "%s\n", fakeGpuLastViolation());
  CHECK_EQ(fakeGpuViolations(nullptr), 0u);
}

}  // namespace fake_gpu_tests
