// The GPU on which TensorFlow has placed a kernel, as CUDA's driver numbers it. Compiles without
// CUDA: a TensorFlow without CUDA has the same classes.
#pragma once

#include <absl/status/status.h>
#include <tensorflow/core/framework/device_base.h>
#include <tensorflow/core/framework/op_kernel.h>
#include <xla/stream_executor/stream.h>

namespace hvdtune_tensorflow {

struct GpuPlace {
  int number = -1;         // as CUDA counts in this process; -1: the kernel is on the CPU
  void* stream = nullptr;  // which TensorFlow puts everything on that computes

  explicit operator bool() const { return number >= 0; }
};

inline absl::Status find_gpu(tensorflow::OpKernelContext& context, GpuPlace& gpu) {
  const auto* device = context.device()->tensorflow_accelerator_device_info();
  if (device == nullptr) return absl::OkStatus();
  const tensorflow::DeviceContext* streams = context.op_device_context();
  if (streams != nullptr && streams->stream() != nullptr) {
    gpu.stream = streams->stream()->platform_specific_handle().stream;
  }
  if (gpu.stream == nullptr) {
    return absl::UnimplementedError(
        "TensorFlow provides no CUDA stream for this device, so NCCL cannot reduce its tensors; "
        "set HVDTUNE_GPU_OPERATIONS=host to reduce them in host memory");
  }
  gpu.number = device->gpu_id;
  return absl::OkStatus();
}

}  // namespace hvdtune_tensorflow
