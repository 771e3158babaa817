// Streams, events and kernels of the fake driver, and what it finds in their use.
#include "ranks.h"

using namespace fake_gpu_tests;

namespace {

// Two streams, and 1000 bytes that the first is going to write while nothing runs.
struct Pending {
  Pending() {
    use_device(0);
    fakeGpuReset();
    first = new_stream();
    second = new_stream();
    ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    ok(cuMemAlloc_v2(&memory, 1000));
    ok(cuMemAlloc_v2(&copy, 1000));
    fakeGpuPause(1);
    ok(cuMemsetD8Async(memory, 7, 1000, first));
  }
  ~Pending() {
    fakeGpuPause(0);
    ok(cuCtxSynchronize());
    ok(cuMemFree_v2(memory));
    ok(cuMemFree_v2(copy));
    ok(cuEventDestroy_v2(event));
    ok(cuStreamDestroy_v2(first));
    ok(cuStreamDestroy_v2(second));
  }
  void copy_on(CUstream stream) { ok(cuMemcpyDtoDAsync_v2(copy, memory, 1000, stream)); }

  CUstream first = nullptr;
  CUstream second = nullptr;
  CUevent event = nullptr;
  CUdeviceptr memory = 0;
  CUdeviceptr copy = 0;
};

constexpr size_t kAddParameters[] = {8, 8, 4};

void add(const FakeGpuLaunch* launch) {
  auto* values = static_cast<float*>(fakeGpuPeek(*static_cast<uint64_t*>(launch->parameters[0])));
  const auto count = *static_cast<uint64_t*>(launch->parameters[1]);
  const auto more = *static_cast<float*>(launch->parameters[2]);
  for (uint64_t i = 0; i < count; ++i) values[i] += more;
}

void add_accesses(const FakeGpuLaunch* launch, FakeGpuAccess access, void* context) {
  const auto count = *static_cast<uint64_t*>(launch->parameters[1]);
  access(context, *static_cast<uint64_t*>(launch->parameters[0]), count * sizeof(float), 1);
}

constexpr FakeGpuKernel kAdd{"add", 3, kAddParameters, add, add_accesses};
constexpr char kPtx[] =
    ".version 7.0\n.target sm_70\n.visible .entry add(\n .param .u64 add_param_0,\n"
    " .param .u64 add_param_1,\n .param .f32 add_param_2\n)\n{ ret; }\n"
    ".visible .entry unknown(.param .align 8 .b8 p[24])\n{ ret; }\n";

}  // namespace

TEST(a_stream_that_reads_without_an_event_races) {
  Pending pending;
  pending.copy_on(pending.second);
  CHECK_EQ(fakeGpuViolations("race"), 1u);
  CHECK(std::string(fakeGpuLastViolation()).find("no event orders them") != std::string::npos);
}

TEST(an_event_orders_streams) {
  Pending pending;
  ok(cuEventRecord(pending.event, pending.first));
  ok(cuStreamWaitEvent(pending.second, pending.event, 0));
  pending.copy_on(pending.second);
  fakeGpuPause(0);
  CHECK_EQ(from_device<uint8_t>(pending.copy, 1000, pending.second)[999], 7);
  no_violations();
}

TEST(an_event_that_was_recorded_too_early_orders_nothing) {
  Pending pending;
  ok(cuEventRecord(pending.event, pending.first));
  ok(cuMemsetD8Async(pending.memory, 8, 10, pending.first));
  ok(cuStreamWaitEvent(pending.second, pending.event, 0));
  pending.copy_on(pending.second);
  CHECK_EQ(fakeGpuViolations("race"), 1u);
}

TEST(order_passes_through_other_streams_and_the_host) {
  Pending pending;
  const CUstream third = new_stream();
  CUevent again = nullptr;
  ok(cuEventCreate(&again, CU_EVENT_DISABLE_TIMING));
  ok(cuEventRecord(pending.event, pending.first));
  ok(cuStreamWaitEvent(third, pending.event, 0));
  ok(cuEventRecord(again, third));
  ok(cuStreamWaitEvent(pending.second, again, 0));
  pending.copy_on(pending.second);
  fakeGpuPause(0);
  until([&] { return cuEventQuery(again) == CUDA_SUCCESS; });
  const CUstream fourth = new_stream();
  ok(cuMemsetD8Async(pending.memory, 1, 10, third));  // which pending.second may still read
  CHECK_EQ(fakeGpuViolations("race"), 1u);
  ok(cuStreamSynchronize(pending.second));
  ok(cuStreamSynchronize(third));
  ok(cuMemsetD8Async(pending.memory, 2, 10, fourth));
  CHECK_EQ(fakeGpuViolations(nullptr), 1u);
  ok(cuStreamSynchronize(fourth));
  ok(cuEventDestroy_v2(again));
  ok(cuStreamDestroy_v2(third));
  ok(cuStreamDestroy_v2(fourth));
}

TEST(reads_of_several_streams_do_not_race) {
  Pending pending;
  fakeGpuPause(0);
  ok(cuStreamSynchronize(pending.first));
  fakeGpuPause(1);
  std::vector<char> host(1000);
  void* pinned = nullptr;
  ok(cuMemHostAlloc(&pinned, 1000, 0));
  pending.copy_on(pending.first);
  ok(cuMemcpyDtoHAsync_v2(pinned, pending.memory, 1000, pending.second));
  no_violations();
  fakeGpuPause(0);
  ok(cuCtxSynchronize());
  ok(cuMemFreeHost(pinned));
  no_violations();
}

TEST(the_legacy_stream_orders_streams_that_block) {
  Pending pending;
  fakeGpuPause(0);
  CUstream blocking = nullptr;
  ok(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  ok(cuStreamSynchronize(pending.first));
  ok(cuMemsetD8Async(pending.memory, 3, 1000, nullptr));
  pending.copy_on(blocking);
  no_violations();
  ok(cuMemsetD8Async(pending.copy, 4, 1, pending.second));
  CHECK_EQ(fakeGpuViolations("race"), 1u);
  ok(cuCtxSynchronize());
  pending.copy_on(blocking);
  CHECK_EQ(from_device<uint8_t>(pending.copy, 1, nullptr)[0], 3);
  ok(cuStreamSynchronize(blocking));
  ok(cuStreamDestroy_v2(blocking));
}

TEST(memory_freed_in_flight_or_used_after_is_found) {
  Pending pending;
  CUdeviceptr memory = 0;
  ok(cuMemAlloc_v2(&memory, 100));
  ok(cuMemsetD8Async(memory, 0, 100, pending.second));
  fakeGpuPause(0);
  ok(cuMemFree_v2(memory));
  CHECK_EQ(fakeGpuViolations("freed-in-flight"), 1u);
  CHECK_EQ(cuMemsetD8Async(memory, 0, 100, pending.second), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(fakeGpuViolations("use-after-free"), 1u);
  CHECK_EQ(cuMemsetD8Async(pending.memory, 0, 1001, pending.first), CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(fakeGpuViolations("out-of-bounds"), 1u);
}

TEST(a_wrong_context_is_refused) {
  Pending pending;
  use_device(1);
  CHECK_EQ(cuMemsetD8Async(pending.memory, 0, 1, pending.first), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(fakeGpuViolations("wrong-context"), 1u);
  ok(cuCtxSetCurrent(nullptr));
  CHECK_EQ(cuStreamQuery(pending.first), CUDA_ERROR_INVALID_HANDLE);
  CHECK_EQ(fakeGpuViolations("wrong-context"), 2u);
  use_device(0);
}

TEST(a_call_in_a_host_function_is_refused) {
  Pending pending;
  fakeGpuPause(0);
  static std::atomic<int> result;
  result = -1;
  ok(cuLaunchHostFunc(
      pending.first,
      [](void* stream) { result = cuStreamSynchronize(static_cast<CUstream>(stream)); },
      pending.first));
  ok(cuStreamSynchronize(pending.first));
  CHECK_EQ(result.load(), CUDA_ERROR_NOT_PERMITTED);
  CHECK_EQ(fakeGpuViolations("call-in-callback"), 1u);
}

TEST(kernels_are_found_by_name_and_launched) {
  Pending pending;
  fakeGpuPause(0);
  fakeGpuRegisterKernel(&kAdd);
  CUmodule module = nullptr;
  CHECK_EQ(cuModuleLoadData(&module, "no PTX"), CUDA_ERROR_INVALID_IMAGE);
  ok(cuModuleLoadData(&module, kPtx));
  CUfunction function = nullptr;
  CHECK_EQ(cuModuleGetFunction(&function, module, "unknown"), CUDA_ERROR_NOT_FOUND);
  CHECK_EQ(cuModuleGetFunction(&function, module, "absent"), CUDA_ERROR_NOT_FOUND);
  ok(cuModuleGetFunction(&function, module, "add"));
  const auto values = on_device(std::vector<float>{1, 2, 3}, pending.first);
  uint64_t count = 3;
  float more = 0.5f;
  CUdeviceptr address = values;
  void* parameters[] = {&address, &count, &more};
  ok(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, pending.first, parameters, nullptr));
  count = 0;  // parameters are copied when a kernel is launched
  CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 2048, 1, 1, 0, pending.first, parameters, nullptr),
           CUDA_ERROR_INVALID_VALUE);
  CHECK(from_device<float>(values, 3, pending.first) == (std::vector<float>{1.5f, 2.5f, 3.5f}));
  count = 4;
  CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, pending.first, parameters, nullptr),
           CUDA_ERROR_INVALID_VALUE);
  CHECK_EQ(fakeGpuViolations("out-of-bounds"), 1u);
  std::vector<float> host(4);
  address = reinterpret_cast<CUdeviceptr>(host.data());
  CHECK_EQ(cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, pending.first, parameters, nullptr),
           CUDA_ERROR_ILLEGAL_ADDRESS);
  ok(cuModuleUnload(module));
  ok(cuMemFree_v2(values));
  CHECK_EQ(fakeGpuViolations(nullptr), 2u);
}

TEST(a_kernel_whose_parameters_differ_is_refused) {
  Pending pending;
  fakeGpuRegisterKernel(&kAdd);
  CUmodule module = nullptr;
  ok(cuModuleLoadData(&module,
                      ".version 7.0\n.visible .entry add(.param .u64 a, .param .u64 b)\n"));
  CUfunction function = nullptr;
  CHECK_EQ(cuModuleGetFunction(&function, module, "add"), CUDA_ERROR_INVALID_IMAGE);
  CHECK_EQ(fakeGpuViolations("kernel-parameters"), 1u);
  ok(cuModuleUnload(module));
}

TEST(events_tell_time_and_pointers_what_they_are) {
  Pending pending;
  fakeGpuPause(0);
  CUevent start = nullptr;
  CUevent end = nullptr;
  ok(cuEventCreate(&start, CU_EVENT_DEFAULT));
  ok(cuEventCreate(&end, CU_EVENT_DEFAULT));
  ok(cuEventRecord(start, pending.first));
  pending.copy_on(pending.first);
  ok(cuEventRecord(end, pending.first));
  ok(cuEventSynchronize(end));
  float milliseconds = -1;
  ok(cuEventElapsedTime(&milliseconds, start, end));
  CHECK(milliseconds >= 0);
  CHECK_EQ(cuEventElapsedTime(&milliseconds, start, pending.event), CUDA_ERROR_INVALID_HANDLE);
  unsigned type = 0;
  ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pending.memory + 999));
  CHECK_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  CHECK_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 reinterpret_cast<CUdeviceptr>(&type)),
           CUDA_ERROR_INVALID_VALUE);
  ok(cuEventDestroy_v2(start));
  ok(cuEventDestroy_v2(end));
  no_violations();
}

TEST(an_allocation_fails_where_a_test_wants_it) {
  Pending pending;
  fakeGpuPause(0);
  CHECK_EQ(fakeGpuSetFaults("out-of-memory device=0 times=1"), 0);
  CUdeviceptr memory = 0;
  CHECK_EQ(cuMemAlloc_v2(&memory, 1), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(fakeGpuFaultsHit("out-of-memory"), 1u);
  ok(cuMemAlloc_v2(&memory, 1));
  ok(cuMemFree_v2(memory));
  CHECK_EQ(cuMemAlloc_v2(&memory, size_t{5} << 30), CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_EQ(fakeGpuSetFaults("no-such-fault"), -1);
  CHECK_EQ(fakeGpuSetFaults("late-peer ms=soon"), -1);
}

TEST(device_memory_is_given_back) {
  const uint64_t before = fakeGpuAllocatedBytes(0);
  const int streams = fakeGpuStreamCount();
  {
    const Pending pending;
  }
  CHECK_EQ(fakeGpuAllocatedBytes(0), before);
  CHECK_EQ(fakeGpuStreamCount(), streams);
}
