// TensorFlow's device "GPU" with the memory, streams and events of tests/fake_gpu, as a plugin
// (tf.config lists it once it is loaded). It computes nothing: of TensorFlow's own kernels it has
// those that only move tensors.
#include <fake_cuda.h>
#include <tensorflow/c/experimental/stream_executor/stream_executor.h>

#include <cstring>
#include <string>

#include "stream_handles.h"

struct SP_Stream_st {
  CUstream stream;
};
struct SP_Event_st {
  CUevent event;
};
struct SP_Timer_st {};

namespace {

// The device's context is the calling thread's while this lives.
class Current {
 public:
  explicit Current(const SP_Device* device) {
    cuCtxGetCurrent(&before_);
    cuCtxSetCurrent(static_cast<CUcontext>(device->device_handle));
  }
  ~Current() { cuCtxSetCurrent(before_); }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  CUcontext before_ = nullptr;
};

void tell(TF_Status* status, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return TF_SetStatus(status, TF_OK, "");
  const std::string text = std::string(call) + " returned " + std::to_string(result);
  TF_SetStatus(status, TF_INTERNAL, text.c_str());
}

CUdeviceptr pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

void allocate(const SP_Device* device, uint64_t size, int64_t /*space*/, SP_DeviceMemoryBase* mem) {
  const Current current(device);
  CUdeviceptr made = 0;
  if (cuMemAlloc_v2(&made, size) != CUDA_SUCCESS) made = 0;
  mem->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  mem->opaque = reinterpret_cast<void*>(made);
  mem->size = made == 0 ? 0 : size;
}

void deallocate(const SP_Device* device, SP_DeviceMemoryBase* mem) {
  const Current current(device);
  if (mem->opaque != nullptr) cuMemFree_v2(pointer(mem->opaque));
}

void* host_memory_allocate(const SP_Device* device, uint64_t size) {
  const Current current(device);
  void* made = nullptr;
  return cuMemHostAlloc(&made, size, 0) == CUDA_SUCCESS ? made : nullptr;
}

void host_memory_deallocate(const SP_Device* device, void* mem) {
  const Current current(device);
  cuMemFreeHost(mem);
}

TF_Bool get_allocator_stats(const SP_Device* /*device*/, SP_AllocatorStats* /*stats*/) { return 0; }

TF_Bool device_memory_usage(const SP_Device* device, int64_t* free, int64_t* total) {
  const Current current(device);
  size_t free_bytes = 0, total_bytes = 0;
  if (cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) return 0;
  *free = static_cast<int64_t>(free_bytes);
  *total = static_cast<int64_t>(total_bytes);
  return 1;
}

void create_stream(const SP_Device* device, SP_Stream* stream, TF_Status* status) {
  const Current current(device);
  *stream = new SP_Stream_st{};
  tell(status, cuStreamCreate(&(*stream)->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  note_stream(stream, (*stream)->stream);
}

void destroy_stream(const SP_Device* device, SP_Stream stream) {
  const Current current(device);
  forget_stream(stream->stream);
  cuStreamDestroy_v2(stream->stream);
  delete stream;
}

void create_event(const SP_Device* device, SP_Event* event, TF_Status* status) {
  const Current current(device);
  *event = new SP_Event_st{};
  tell(status, cuEventCreate(&(*event)->event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
}

void destroy_event(const SP_Device* device, SP_Event event) {
  const Current current(device);
  cuEventDestroy_v2(event->event);
  delete event;
}

SE_EventStatus get_event_status(const SP_Device* device, SP_Event event) {
  const Current current(device);
  const CUresult result = cuEventQuery(event->event);
  if (result == CUDA_ERROR_NOT_READY) return SE_EVENT_PENDING;
  return result == CUDA_SUCCESS ? SE_EVENT_COMPLETE : SE_EVENT_ERROR;
}

void record_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  const Current current(device);
  tell(status, cuEventRecord(event->event, stream->stream), "cuEventRecord");
}

void wait_for_event(const SP_Device* device, SP_Stream stream, SP_Event event, TF_Status* status) {
  const Current current(device);
  tell(status, cuStreamWaitEvent(stream->stream, event->event, 0), "cuStreamWaitEvent");
}

void create_stream_dependency(const SP_Device* device, SP_Stream dependent, SP_Stream other,
                              TF_Status* status) {
  SP_Event event = nullptr;
  create_event(device, &event, status);
  if (TF_GetCode(status) == TF_OK) record_event(device, other, event, status);
  if (TF_GetCode(status) == TF_OK) wait_for_event(device, dependent, event, status);
  destroy_event(device, event);
}

void get_stream_status(const SP_Device* /*device*/, SP_Stream /*stream*/, TF_Status* status) {
  TF_SetStatus(status, TF_OK, "");
}

void create_timer(const SP_Device* /*device*/, SP_Timer* timer, TF_Status* status) {
  *timer = new SP_Timer_st{};
  TF_SetStatus(status, TF_OK, "");
}

void destroy_timer(const SP_Device* /*device*/, SP_Timer timer) { delete timer; }

void no_timing(const SP_Device* /*device*/, SP_Stream /*stream*/, SP_Timer /*timer*/,
               TF_Status* status) {
  TF_SetStatus(status, TF_UNIMPLEMENTED, "the fake GPU tells no times");
}

void memcpy_dtoh(const SP_Device* device, SP_Stream stream, void* to,
                 const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, cuMemcpyDtoHAsync_v2(to, pointer(from->opaque), size, stream->stream),
       "cuMemcpyDtoHAsync");
}

void memcpy_htod(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
                 const void* from, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, cuMemcpyHtoDAsync_v2(pointer(to->opaque), from, size, stream->stream),
       "cuMemcpyHtoDAsync");
}

void memcpy_dtod(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* to,
                 const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status,
       cuMemcpyDtoDAsync_v2(pointer(to->opaque), pointer(from->opaque), size, stream->stream),
       "cuMemcpyDtoDAsync");
}

void block_host_until_done(const SP_Device* device, SP_Stream stream, TF_Status* status) {
  const Current current(device);
  tell(status, cuStreamSynchronize(stream->stream), "cuStreamSynchronize");
}

// Calls `copy` on a stream that is there for it alone, and waits.
template <typename Copy>
void at_once(const SP_Device* device, TF_Status* status, const Copy& copy) {
  SP_Stream_st stream{};
  {
    const Current current(device);
    tell(status, cuStreamCreate(&stream.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  }
  if (TF_GetCode(status) != TF_OK) return;
  copy(&stream);
  if (TF_GetCode(status) == TF_OK) block_host_until_done(device, &stream, status);
  const Current current(device);
  cuStreamDestroy_v2(stream.stream);
}

void sync_memcpy_dtoh(const SP_Device* device, void* to, const SP_DeviceMemoryBase* from,
                      uint64_t size, TF_Status* status) {
  at_once(device, status,
          [&](SP_Stream stream) { memcpy_dtoh(device, stream, to, from, size, status); });
}

void sync_memcpy_htod(const SP_Device* device, SP_DeviceMemoryBase* to, const void* from,
                      uint64_t size, TF_Status* status) {
  at_once(device, status,
          [&](SP_Stream stream) { memcpy_htod(device, stream, to, from, size, status); });
}

void sync_memcpy_dtod(const SP_Device* device, SP_DeviceMemoryBase* to,
                      const SP_DeviceMemoryBase* from, uint64_t size, TF_Status* status) {
  at_once(device, status,
          [&](SP_Stream stream) { memcpy_dtod(device, stream, to, from, size, status); });
}

void block_host_for_event(const SP_Device* device, SP_Event event, TF_Status* status) {
  const Current current(device);
  tell(status, cuEventSynchronize(event->event), "cuEventSynchronize");
}

void synchronize_all_activity(const SP_Device* device, TF_Status* status) {
  const Current current(device);
  tell(status, cuCtxSynchronize(), "cuCtxSynchronize");
}

void set_bytes(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* at, uint8_t pattern,
               uint64_t size, TF_Status* status) {
  const Current current(device);
  tell(status, cuMemsetD8Async(pointer(at->opaque), pattern, size, stream->stream),
       "cuMemsetD8Async");
}

void mem_zero(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* at, uint64_t size,
              TF_Status* status) {
  set_bytes(device, stream, at, 0, size, status);
}

void set_words(const SP_Device* device, SP_Stream stream, SP_DeviceMemoryBase* at, uint32_t pattern,
               uint64_t size, TF_Status* status) {
  const auto byte = static_cast<uint8_t>(pattern);
  if (pattern == byte * 0x01010101U) return set_bytes(device, stream, at, byte, size, status);
  TF_SetStatus(status, TF_UNIMPLEMENTED, "the fake GPU sets bytes only");
}

struct HostCall {
  SE_StatusCallbackFn function;
  void* argument;
};

void call_host(void* given) {
  const auto* call = static_cast<HostCall*>(given);
  TF_Status* status = TF_NewStatus();
  call->function(call->argument, status);
  TF_DeleteStatus(status);
  delete call;
}

TF_Bool host_callback(const SP_Device* device, SP_Stream stream, SE_StatusCallbackFn function,
                      void* argument) {
  const Current current(device);
  auto* call = new HostCall{function, argument};
  return cuLaunchHostFunc(stream->stream, call_host, call) == CUDA_SUCCESS;
}

void get_device_count(const SP_Platform* /*platform*/, int* count, TF_Status* status) {
  tell(status, cuInit(0), "cuInit");
  if (TF_GetCode(status) == TF_OK) tell(status, cuDeviceGetCount(count), "cuDeviceGetCount");
}

void create_device(const SP_Platform* /*platform*/, SE_CreateDeviceParams* params,
                   TF_Status* status) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  tell(status, cuDeviceGet(&device, params->ordinal), "cuDeviceGet");
  if (TF_GetCode(status) != TF_OK) return;
  tell(status, cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->device_handle = context;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = "fake";
}

void destroy_device(const SP_Platform* /*platform*/, SP_Device* device) {
  cuDevicePrimaryCtxRelease_v2(device->ordinal);
}

void create_device_fns(const SP_Platform* /*platform*/, SE_CreateDeviceFnsParams* params,
                       TF_Status* status) {
  *params->device_fns = {SP_DEVICE_FNS_STRUCT_SIZE, nullptr, nullptr, nullptr, nullptr};
  TF_SetStatus(status, TF_OK, "");
}

void destroy_device_fns(const SP_Platform* /*platform*/, SP_DeviceFns* /*fns*/) {}

void create_stream_executor(const SP_Platform* /*platform*/, SE_CreateStreamExecutorParams* params,
                            TF_Status* status) {
  SP_StreamExecutor& fns = *params->stream_executor;
  fns.struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  fns.allocate = allocate;
  fns.deallocate = deallocate;
  fns.host_memory_allocate = host_memory_allocate;
  fns.host_memory_deallocate = host_memory_deallocate;
  fns.get_allocator_stats = get_allocator_stats;
  fns.device_memory_usage = device_memory_usage;
  fns.create_stream = create_stream;
  fns.destroy_stream = destroy_stream;
  fns.create_stream_dependency = create_stream_dependency;
  fns.get_stream_status = get_stream_status;
  fns.create_event = create_event;
  fns.destroy_event = destroy_event;
  fns.get_event_status = get_event_status;
  fns.record_event = record_event;
  fns.wait_for_event = wait_for_event;
  fns.create_timer = create_timer;
  fns.destroy_timer = destroy_timer;
  fns.start_timer = no_timing;
  fns.stop_timer = no_timing;
  fns.memcpy_dtoh = memcpy_dtoh;
  fns.memcpy_htod = memcpy_htod;
  fns.memcpy_dtod = memcpy_dtod;
  fns.sync_memcpy_dtoh = sync_memcpy_dtoh;
  fns.sync_memcpy_htod = sync_memcpy_htod;
  fns.sync_memcpy_dtod = sync_memcpy_dtod;
  fns.block_host_for_event = block_host_for_event;
  fns.block_host_until_done = block_host_until_done;
  fns.synchronize_all_activity = synchronize_all_activity;
  fns.mem_zero = mem_zero;
  fns.memset = set_bytes;
  fns.memset32 = set_words;
  fns.host_callback = host_callback;
  TF_SetStatus(status, TF_OK, "");
}

void destroy_stream_executor(const SP_Platform* /*platform*/, SP_StreamExecutor* /*executor*/) {}

void create_timer_fns(const SP_Platform* /*platform*/, SP_TimerFns* fns, TF_Status* status) {
  fns->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  fns->nanoseconds = [](SP_Timer /*timer*/) { return uint64_t{0}; };
  TF_SetStatus(status, TF_OK, "");
}

void destroy_timer_fns(const SP_Platform* /*platform*/, SP_TimerFns* /*fns*/) {}

void destroy_platform(SP_Platform* /*platform*/) {}

void destroy_platform_fns(SP_PlatformFns* /*fns*/) {}

}  // namespace

extern "C" __attribute__((visibility("default"))) void SE_InitPlugin(
    SE_PlatformRegistrationParams* params, TF_Status* status) {
  SP_Platform& platform = *params->platform;
  platform.struct_size = SP_PLATFORM_STRUCT_SIZE;
  platform.name = "FAKE_GPU";
  platform.type = "GPU";
  platform.use_bfc_allocator = 1;  // as for CUDA: what is freed is used again at once
  platform.force_memory_growth = 1;
  SP_PlatformFns& fns = *params->platform_fns;
  fns.struct_size = SP_PLATFORM_FNS_STRUCT_SIZE;
  fns.get_device_count = get_device_count;
  fns.create_device = create_device;
  fns.destroy_device = destroy_device;
  fns.create_device_fns = create_device_fns;
  fns.destroy_device_fns = destroy_device_fns;
  fns.create_stream_executor = create_stream_executor;
  fns.destroy_stream_executor = destroy_stream_executor;
  fns.create_timer_fns = create_timer_fns;
  fns.destroy_timer_fns = destroy_timer_fns;
  params->destroy_platform = destroy_platform;
  params->destroy_platform_fns = destroy_platform_fns;
  TF_SetStatus(status, TF_OK, "");
}
