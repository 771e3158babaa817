// CUDA's driver, found at run time. The declarations are hvdtune's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/dynamic_library.h"

namespace hvdtune {

using CudaResult = int;
using CudaDevice = int;
using CudaPointer = unsigned long long;
using CudaContext = struct CudaContextObject*;
using CudaStream = struct CudaStreamObject*;
using CudaEvent = struct CudaEventObject*;
using CudaModule = struct CudaModuleObject*;
using CudaFunction = struct CudaFunctionObject*;
using CudaGraph = struct CudaGraphObject*;
using CudaUserObject = struct CudaUserObjectObject*;

inline constexpr CudaResult kCudaSuccess = 0;
inline constexpr CudaResult kCudaNoDevice = 100;
inline constexpr CudaResult kCudaNotReady = 600;
inline constexpr unsigned kCudaStreamNonBlocking = 1;
inline constexpr unsigned kCudaEventDisableTiming = 2;
inline constexpr int kCudaCaptureModeRelaxed = 2;
inline constexpr unsigned kCudaNoDestructorSync = 1;
inline constexpr unsigned kCudaMoveToGraph = 1;

// Every function that is called: what it is called here, and in the library.
#define HVDTUNE_CUDA_FUNCTIONS(X)                                                               \
  X(init, "cuInit", (unsigned))                                                                 \
  X(driver_version, "cuDriverGetVersion", (int*))                                               \
  X(device_count, "cuDeviceGetCount", (int*))                                                   \
  X(device, "cuDeviceGet", (CudaDevice*, int))                                                  \
  X(device_name, "cuDeviceGetName", (char*, int, CudaDevice))                                   \
  X(device_bus_id, "cuDeviceGetPCIBusId", (char*, int, CudaDevice))                             \
  X(retain_context, "cuDevicePrimaryCtxRetain", (CudaContext*, CudaDevice))                     \
  X(release_context, "cuDevicePrimaryCtxRelease_v2", (CudaDevice))                              \
  X(set_current, "cuCtxSetCurrent", (CudaContext))                                              \
  X(get_current, "cuCtxGetCurrent", (CudaContext*))                                             \
  X(allocate, "cuMemAlloc_v2", (CudaPointer*, size_t))                                          \
  X(free, "cuMemFree_v2", (CudaPointer))                                                        \
  X(allocate_pinned, "cuMemHostAlloc", (void**, size_t, unsigned))                              \
  X(free_pinned, "cuMemFreeHost", (void*))                                                      \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", (CudaPointer, const void*, size_t, CudaStream))     \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", (void*, CudaPointer, size_t, CudaStream))             \
  X(copy_within_device, "cuMemcpyDtoDAsync_v2", (CudaPointer, CudaPointer, size_t, CudaStream)) \
  X(create_stream, "cuStreamCreateWithPriority", (CudaStream*, unsigned, int))                  \
  X(destroy_stream, "cuStreamDestroy_v2", (CudaStream))                                         \
  X(wait_event, "cuStreamWaitEvent", (CudaStream, CudaEvent, unsigned))                         \
  X(query_stream, "cuStreamQuery", (CudaStream))                                                \
  X(is_capturing, "cuStreamIsCapturing", (CudaStream, int*))                                    \
  X(capture_info, "cuStreamGetCaptureInfo_v2",                                                  \
    (CudaStream, int*, uint64_t*, CudaGraph*, const void**, size_t*))                           \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int*))                         \
  X(create_user_object, "cuUserObjectCreate",                                                   \
    (CudaUserObject*, void*, void (*)(void*), unsigned, unsigned))                              \
  X(retain_user_object, "cuGraphRetainUserObject",                                              \
    (CudaGraph, CudaUserObject, unsigned, unsigned))                                            \
  X(create_event, "cuEventCreate", (CudaEvent*, unsigned))                                      \
  X(destroy_event, "cuEventDestroy_v2", (CudaEvent))                                            \
  X(record_event, "cuEventRecord", (CudaEvent, CudaStream))                                     \
  X(query_event, "cuEventQuery", (CudaEvent))                                                   \
  X(elapsed, "cuEventElapsedTime", (float*, CudaEvent, CudaEvent))                              \
  X(load_module, "cuModuleLoadData", (CudaModule*, const void*))                                \
  X(unload_module, "cuModuleUnload", (CudaModule))                                              \
  X(get_function, "cuModuleGetFunction", (CudaFunction*, CudaModule, const char*))              \
  X(launch, "cuLaunchKernel",                                                                   \
    (CudaFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,        \
     CudaStream, void**, void**))                                                               \
  X(error_name, "cuGetErrorName", (CudaResult, const char**))                                   \
  X(error_text, "cuGetErrorString", (CudaResult, const char**))

// Thread rule: every function may be called from any thread; those that make something, from one
// that has made a context current.
class CudaDriver {
 public:
  // `path` is the library to load where the process has none yet, or empty: what the system has.
  // Throws Error(kUsage) with a sentence if it cannot be loaded. It is not initialised yet:
  // CUDA_VISIBLE_DEVICES has no effect after that, and scripts set it when they know their local
  // rank.
  static std::shared_ptr<CudaDriver> open(const std::string& path = {});

#define HVDTUNE_DECLARE(name, symbol, parameters) CudaResult(*name) parameters = nullptr;
  HVDTUNE_CUDA_FUNCTIONS(HVDTUNE_DECLARE)
#undef HVDTUNE_DECLARE

  // As in "12.9".
  std::string version() const;
  // These initialise it. Throw Error(kUsage) with a sentence if it does not work; that there is no
  // GPU is no error.
  int count() const;
  std::string name_of(int number) const;
  const std::string& path() const { return library_.path(); }

  // Throws Error(kInternal) with CUDA's name for `result` if it is an error of the function `what`.
  void check(CudaResult result, const char* what) const;
  std::string describe(CudaResult result) const;

 private:
  explicit CudaDriver(DynamicLibrary library);
  void initialise() const;  // again does nothing

  DynamicLibrary library_;
};

}  // namespace hvdtune
