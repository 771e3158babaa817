// The functions of libcuda.so.1.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../engine/capture.h"
#include "../engine/engine.h"
#include "../engine/faults.h"
#include "../engine/violations.h"
#include "../include/fake_cuda.h"
#include "entered.h"
#include "modules.h"

using namespace fake_gpu;

namespace {

constexpr int kDriverVersion = 13000;

struct Function {
  const FakeGpuKernel* kernel;
  Context* context;
};

struct Module {
  Context* context;
  std::vector<Entry> entries;
  std::vector<std::unique_ptr<Function>> functions;
};

bool is_device(CUdevice device) {
  return device >= 0 && static_cast<size_t>(device) < engine().contexts.size();
}

Event* event_of(CUevent handle, const char* caller) {
  if (engine().events.contains(handle)) return reinterpret_cast<Event*>(handle);
  violate("dead-handle", std::string(caller) + " is given an event that does not exist.");
  return nullptr;
}

bool is_pageable(uint64_t address) {
  return !is_device_address(address) && allocation_at(address) == nullptr;
}

// The copy itself. Memory of the host that is not pinned is copied by the caller, or waited for, as
// the driver does.
CUresult copy(const char* caller, uint64_t to, uint64_t from, size_t bytes, CUstream handle) {
  if (const CUresult error = entered(caller)) return error;
  std::unique_lock lock(engine().mutex);
  Stream* stream = stream_of(handle, caller);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (bytes == 0) return CUDA_SUCCESS;
  const bool waits = is_pageable(to);
  if (capture_of(stream) != nullptr && (waits || is_pageable(from))) {
    violate("capture", std::string(caller) +
                           " is given memory of the host that is not pinned, on a "
                           "stream that is being captured.");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  std::shared_ptr<std::vector<char>> staged;
  if (is_pageable(from)) {
    const auto* first = reinterpret_cast<const char*>(from);
    staged = std::make_shared<std::vector<char>>(first, first + bytes);
  }
  const CUresult result = enqueue(
      stream, caller, {{from, from + bytes, false}, {to, to + bytes, true}},
      [=] { std::memmove(host_address(to), staged ? staged->data() : host_address(from), bytes); });
  if (result != CUDA_SUCCESS || !waits) return result;
  const Clock clock = clock_after(stream);
  Context* context = stream->context;
  if (!wait_done(lock, stream->id, stream->enqueued)) return CUDA_ERROR_UNKNOWN;
  host_learns(context, clock);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuInit(unsigned) {
  Engine& all = engine();
  std::unique_lock lock(all.mutex);
  if (all.initialized) return CUDA_SUCCESS;
  const uint64_t devices = number_from("FAKE_GPU_DEVICES", 8);
  if (devices == 0) return CUDA_ERROR_NO_DEVICE;
  for (uint64_t device = 0; device < devices; ++device) {
    all.contexts.push_back(
        std::make_unique<Context>(Context{static_cast<int>(device), 0, {}, 0, 0, nullptr, {}, {}}));
  }
  all.initialized = true;
  lock.unlock();
  return load_kernels() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(number_from("FAKE_CUDA_VERSION", kDriverVersion));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult error = entered("cuDeviceGetCount")) return error;
  *count = static_cast<int>(engine().contexts.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult error = entered("cuDeviceGet")) return error;
  if (!is_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  if (const CUresult error = entered("cuDeviceGetName")) return error;
  if (!is_device(device) || length <= 0) return CUDA_ERROR_INVALID_DEVICE;
  std::snprintf(name, static_cast<size_t>(length), "fake GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  if (const CUresult error = entered("cuDeviceGetPCIBusId")) return error;
  if (!is_device(device) || length < 13) return CUDA_ERROR_INVALID_VALUE;
  std::snprintf(id, static_cast<size_t>(length), "0000:%02X:00.0", 0x10 + device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  if (const CUresult error = entered("cuDeviceGetAttribute")) return error;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  // Numbers of an H100: threads of a block, multiprocessors, compute capability.
  const std::map<int, int> known{{1, 1024}, {10, 32}, {16, 132}, {75, 9}, {76, 0}};
  const auto found = known.find(attribute);
  if (found == known.end()) return CUDA_ERROR_NOT_SUPPORTED;
  *value = found->second;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  if (const CUresult error = entered("cuDevicePrimaryCtxRetain")) return error;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(engine().mutex);
  Context* found = engine().contexts[device].get();
  ++found->retained;
  if (found->legacy == nullptr) {
    found->legacy = create_stream(found, CU_STREAM_DEFAULT);
    found->legacy->is_legacy = true;
    engine().streams.erase(found->legacy);  // it has no handle of its own
  }
  *context = reinterpret_cast<CUcontext>(found);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  if (const CUresult error = entered("cuDevicePrimaryCtxRelease")) return error;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(engine().mutex);
  Context* found = engine().contexts[device].get();
  if (found->retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
  --found->retained;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (const CUresult error = entered("cuDevicePrimaryCtxGetState")) return error;
  if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(engine().mutex);
  *flags = 0;
  *active = engine().contexts[device]->retained > 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (const CUresult error = entered("cuCtxSetCurrent")) return error;
  current_context() = reinterpret_cast<Context*>(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult error = entered("cuCtxGetCurrent")) return error;
  *context = reinterpret_cast<CUcontext>(current_context());
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  if (const CUresult error = entered("cuCtxGetDevice")) return error;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  if (const CUresult error = entered("cuCtxSynchronize")) return error;
  std::unique_lock lock(engine().mutex);
  if (is_refused_by_capture("cuCtxSynchronize")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Clock all;
  for (const Stream* stream : context->streams) join(all, clock_after(stream));
  if (!wait_idle(lock, context)) return CUDA_ERROR_UNKNOWN;
  host_learns(context, all);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  if (const CUresult error = entered("cuMemGetInfo")) return error;
  const std::lock_guard lock(engine().mutex);
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *total_bytes = number_from("FAKE_GPU_MEMORY_BYTES", uint64_t{4} << 30);
  *free_bytes = *total_bytes - current_context()->allocated_bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  if (const CUresult error = entered("cuMemAlloc")) return error;
  const std::lock_guard lock(engine().mutex);
  if (is_refused_by_capture("cuMemAlloc")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) {
    violate("wrong-context", "cuMemAlloc is called by a thread without a context.");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* memory = allocate(current_context(), bytes, Memory::kDevice);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = memory->base;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
  if (const CUresult error = entered("cuMemFree")) return error;
  if (pointer == 0) return CUDA_SUCCESS;
  std::unique_lock lock(engine().mutex);
  if (is_refused_by_capture("cuMemFree")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return release_memory(lock, pointer, false);
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  if (const CUresult error = entered("cuMemHostAlloc")) return error;
  const std::lock_guard lock(engine().mutex);
  if (is_refused_by_capture("cuMemHostAlloc")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (current_context() == nullptr) {
    violate("wrong-context", "cuMemHostAlloc is called by a thread without a context.");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const Allocation* memory = allocate(current_context(), bytes, Memory::kPinned);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = reinterpret_cast<void*>(memory->base);
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* pointer) {
  if (const CUresult error = entered("cuMemFreeHost")) return error;
  std::unique_lock lock(engine().mutex);
  if (is_refused_by_capture("cuMemFreeHost")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return release_memory(lock, reinterpret_cast<uint64_t>(pointer), true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyAsync", to, from, bytes, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyDtoHAsync", reinterpret_cast<uint64_t>(to), from, bytes, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyHtoDAsync", to, reinterpret_cast<uint64_t>(from), bytes, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy("cuMemcpyDtoDAsync", to, from, bytes, stream);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream handle) {
  if (const CUresult error = entered("cuMemsetD8Async")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuMemsetD8Async");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, "cuMemsetD8Async", {{to, to + count, true}},
                 [=] { std::memset(host_address(to), value, count); });
}

CUresult cuPointerGetAttribute(void* value, int attribute, CUdeviceptr pointer) {
  if (const CUresult error = entered("cuPointerGetAttribute")) return error;
  const std::lock_guard lock(engine().mutex);
  const Allocation* memory = allocation_at(pointer);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool pinned = memory->memory == Memory::kPinned;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<void**>(value) = engine().contexts[memory->device].get();
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = pointer;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!pinned) return CUDA_ERROR_INVALID_VALUE;
      *static_cast<void**>(value) = reinterpret_cast<void*>(pointer);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = memory->device;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = memory->base;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_t*>(value) = memory->bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return cuStreamCreateWithPriority(stream, flags, 0);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) {
  if (const CUresult error = entered("cuStreamCreateWithPriority")) return error;
  const std::lock_guard lock(engine().mutex);
  if (current_context() == nullptr) {
    violate("wrong-context", "cuStreamCreate is called by a thread without a context.");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *stream = reinterpret_cast<CUstream>(create_stream(current_context(), flags));
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (const CUresult error = entered("cuCtxGetStreamPriorityRange")) return error;
  *least = 0;
  *greatest = -5;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream handle) {
  if (const CUresult error = entered("cuStreamDestroy")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuStreamDestroy");
  if (stream == nullptr || stream->is_legacy) return CUDA_ERROR_INVALID_HANDLE;
  destroy_stream(stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned) {
  if (const CUresult error = entered("cuStreamWaitEvent")) return error;
  stop_process("stop-wait", {});
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuStreamWaitEvent");
  const Event* event = event_of(event_handle, "cuStreamWaitEvent");
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return capture_wait(stream, *event);
  if (!event->is_recorded) return CUDA_SUCCESS;
  const Recorded recorded = event->recorded;
  if (capture_of(stream) != nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  const CUresult result = enqueue(stream, "cuStreamWaitEvent", {}, [recorded] {
    std::unique_lock waiting(engine().mutex);
    wait_done(waiting, recorded.stream, recorded.number);
  });
  if (result == CUDA_SUCCESS) join(stream->clock, recorded.clock);
  return result;
}

CUresult cuStreamQuery(CUstream handle) {
  if (const CUresult error = entered("cuStreamQuery")) return error;
  const std::lock_guard lock(engine().mutex);
  if (is_refused_by_capture("cuStreamQuery")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Stream* stream = stream_of(handle, "cuStreamQuery");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!is_done(stream->id, stream->enqueued)) return CUDA_ERROR_NOT_READY;
  host_learns(stream->context, clock_after(stream));
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream handle) {
  if (const CUresult error = entered("cuStreamSynchronize")) return error;
  std::unique_lock lock(engine().mutex);
  if (is_refused_by_capture("cuStreamSynchronize")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Stream* stream = stream_of(handle, "cuStreamSynchronize");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const Clock clock = clock_after(stream);
  Context* context = stream->context;
  if (!wait_done(lock, stream->id, stream->enqueued)) return CUDA_ERROR_UNKNOWN;
  host_learns(context, clock);
  return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream handle, void (*function)(void*), void* argument) {
  if (const CUresult error = entered("cuLaunchHostFunc")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuLaunchHostFunc");
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return enqueue(stream, "cuLaunchHostFunc", {}, [=] {
    in_callback() = true;
    function(argument);
    in_callback() = false;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  if (const CUresult error = entered("cuEventCreate")) return error;
  const std::lock_guard lock(engine().mutex);
  if (current_context() == nullptr) {
    violate("wrong-context", "cuEventCreate is called by a thread without a context.");
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  auto* fresh = new Event{current_context(), flags, false, {}, nullptr};
  engine().events.insert(fresh);
  *event = reinterpret_cast<CUevent>(fresh);
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle) {
  if (const CUresult error = entered("cuEventDestroy")) return error;
  const std::lock_guard lock(engine().mutex);
  Event* event = event_of(handle, "cuEventDestroy");
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  engine().events.erase(event);
  delete event;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event_handle, CUstream handle) {
  if (const CUresult error = entered("cuEventRecord")) return error;
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, "cuEventRecord");
  Event* event = event_of(event_handle, "cuEventRecord");
  if (stream == nullptr || event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->context != stream->context) {
    violate("wrong-context",
            "cuEventRecord is given an event of device " + std::to_string(event->context->device) +
                " and a stream of device " + std::to_string(stream->context->device) + ".");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  event->captured = nullptr;
  if (capture_of(stream) != nullptr) return capture_record(stream, event);
  auto time = std::make_shared<std::atomic<uint64_t>>(0);
  const CUresult result = enqueue(stream, "cuEventRecord", {}, [time] { *time = now_ns(); });
  if (result != CUDA_SUCCESS) return result;
  event->recorded = {stream->id, stream->enqueued, clock_after(stream), time};
  event->is_recorded = true;
  return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent handle) {
  if (const CUresult error = entered("cuEventQuery")) return error;
  const std::lock_guard lock(engine().mutex);
  if (is_refused_by_capture("cuEventQuery")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Event* event = event_of(handle, "cuEventQuery");
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->is_recorded) return CUDA_SUCCESS;
  if (!is_done(event->recorded.stream, event->recorded.number)) return CUDA_ERROR_NOT_READY;
  host_learns(event->context, event->recorded.clock);
  stop_process("stop-query", {{"stream", static_cast<int64_t>(event->recorded.stream)}});
  return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent handle) {
  if (const CUresult error = entered("cuEventSynchronize")) return error;
  std::unique_lock lock(engine().mutex);
  if (is_refused_by_capture("cuEventSynchronize")) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  Event* event = event_of(handle, "cuEventSynchronize");
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
  if (!event->is_recorded) return CUDA_SUCCESS;
  const Recorded recorded = event->recorded;
  Context* context = event->context;
  if (!wait_done(lock, recorded.stream, recorded.number)) return CUDA_ERROR_UNKNOWN;
  host_learns(context, recorded.clock);
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  if (const CUresult error = entered("cuEventElapsedTime")) return error;
  const std::lock_guard lock(engine().mutex);
  const Event* start = event_of(start_handle, "cuEventElapsedTime");
  const Event* end = event_of(end_handle, "cuEventElapsedTime");
  if (start == nullptr || end == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  for (const Event* event : {start, end}) {
    if (event->captured) return CUDA_ERROR_CAPTURED_EVENT;
    if (!event->is_recorded || (event->flags & CU_EVENT_DISABLE_TIMING) != 0) {
      return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!is_done(event->recorded.stream, event->recorded.number)) return CUDA_ERROR_NOT_READY;
  }
  const auto elapsed =
      static_cast<int64_t>(end->recorded.time_ns->load() - start->recorded.time_ns->load());
  *milliseconds = static_cast<float>(elapsed) / 1e6f;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  if (const CUresult error = entered("cuModuleLoadData")) return error;
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::string_view text(static_cast<const char*>(image));
  if (text.find(".version") == std::string_view::npos) return CUDA_ERROR_INVALID_IMAGE;
  *module = reinterpret_cast<CUmodule>(new Module{current_context(), entries_of(text), {}});
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
  if (const CUresult error = entered("cuModuleUnload")) return error;
  delete reinterpret_cast<Module*>(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  if (const CUresult error = entered("cuModuleGetFunction")) return error;
  auto* module = reinterpret_cast<Module*>(handle);
  const auto entry = std::find_if(module->entries.begin(), module->entries.end(),
                                  [&](const Entry& known) { return known.name == name; });
  if (entry == module->entries.end()) return CUDA_ERROR_NOT_FOUND;
  const FakeGpuKernel* kernel = kernel_named(name);
  if (kernel == nullptr) {
    note("the module has a kernel " + std::string(name) + ", but no host function is registered.");
    return CUDA_ERROR_NOT_FOUND;
  }
  if (!std::equal(entry->parameter_bytes.begin(), entry->parameter_bytes.end(),
                  kernel->parameter_bytes, kernel->parameter_bytes + kernel->parameter_count)) {
    violate("kernel-parameters", "The kernel " + std::string(name) +
                                     " has other parameters in the module than in its host "
                                     "function.");
    return CUDA_ERROR_INVALID_IMAGE;
  }
  module->functions.push_back(std::make_unique<Function>(Function{kernel, module->context}));
  *function = reinterpret_cast<CUfunction>(module->functions.back().get());
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                        CUstream stream_handle, void** parameters, void** extra) {
  if (const CUresult error = entered("cuLaunchKernel")) return error;
  const auto* function = reinterpret_cast<const Function*>(handle);
  const uint64_t threads = uint64_t{block_x} * block_y * block_z;
  if (extra != nullptr || threads == 0 || threads > 1024 || grid_x == 0 || grid_y == 0 ||
      grid_z == 0 || grid_x > 0x7fffffffu || grid_y > 65535 || grid_z > 65535) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const FakeGpuKernel* kernel = function->kernel;
  struct Copied {
    std::vector<std::vector<char>> values;
    std::vector<void*> pointers;
    FakeGpuLaunch launch;
  };
  const auto copied = std::make_shared<Copied>();
  for (size_t i = 0; i < kernel->parameter_count; ++i) {
    const auto* first = static_cast<const char*>(parameters[i]);
    copied->values.emplace_back(first, first + kernel->parameter_bytes[i]);
  }
  for (auto& value : copied->values) copied->pointers.push_back(value.data());
  copied->launch = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, copied->pointers.data()};
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(stream_handle, kernel->name);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (function->context != stream->context) {
    violate("wrong-context", std::string(kernel->name) + " was loaded on device " +
                                 std::to_string(function->context->device) +
                                 " and is launched on device " +
                                 std::to_string(stream->context->device) + ".");
    return CUDA_ERROR_INVALID_HANDLE;
  }
  std::vector<Access> accesses;
  kernel->accesses(
      &copied->launch,
      [](void* list, uint64_t begin, size_t bytes, int write) {
        static_cast<std::vector<Access>*>(list)->push_back({begin, begin + bytes, write != 0});
      },
      &accesses);
  for (const auto& access : accesses) {
    if (access.begin == access.end || !is_pageable(access.begin)) continue;
    violate("host-memory-in-kernel",
            std::string(kernel->name) + " is given memory of the host " + "that is not pinned.");
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return enqueue(stream, kernel->name, accesses,
                 [copied, kernel] { kernel->run(&copied->launch); });
}
}
