#include "device/gpu.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/plural.h"
#include "base/status.h"

namespace hvdtune {

Gpu::Gpu(std::shared_ptr<CudaDriver> driver, int number)
    : driver_(std::move(driver)), number_(number) {
  const int count = driver_->count();
  if (number < 0 || number >= count) {
    throw Error(ErrorCode::kUsage, "GPU " + std::to_string(number) +
                                       " does not exist; this process sees " +
                                       counted(count, "GPU"));
  }
  driver_->check(driver_->device(&device_, number), "cuDeviceGet");
  driver_->check(driver_->retain_context(&context_, device_), "cuDevicePrimaryCtxRetain");
}

Gpu::~Gpu() { driver_->release_context(device_); }

bool Gpu::is_capturing(CudaStream stream) const {
  int status = 0;
  driver_->check(driver_->is_capturing(stream, &status), "cuStreamIsCapturing");
  return status != 0;
}

Gpu::Scope::Scope(const Gpu& gpu) : gpu_(gpu) {
  const CudaDriver& driver = gpu.driver();
  driver.check(driver.get_current(&before_), "cuCtxGetCurrent");
  if (before_ != gpu.context_) driver.check(driver.set_current(gpu.context_), "cuCtxSetCurrent");
}

Gpu::Scope::~Scope() {
  if (before_ != gpu_.context_) gpu_.driver().set_current(before_);
}

RelaxedCaptureMode::RelaxedCaptureMode(std::shared_ptr<const CudaDriver> driver)
    : driver_(std::move(driver)) {
  driver_->check(driver_->exchange_capture_mode(&before_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCaptureMode::~RelaxedCaptureMode() { driver_->exchange_capture_mode(&before_); }

GpuEvent::GpuEvent(std::shared_ptr<const Gpu> gpu, Timing timing) : gpu_(std::move(gpu)) {
  const Gpu::Scope scope(*gpu_);
  const CudaDriver& driver = gpu_->driver();
  const unsigned flags = timing == Timing::kOn ? 0 : kCudaEventDisableTiming;
  driver.check(driver.create_event(&event_, flags), "cuEventCreate");
}

GpuEvent::~GpuEvent() {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().destroy_event(event_);
}

void GpuEvent::record(CudaStream stream) const {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().check(gpu_->driver().record_event(event_, stream), "cuEventRecord");
}

bool GpuEvent::has_passed() const {
  const Gpu::Scope scope(*gpu_);
  const CudaResult result = gpu_->driver().query_event(event_);
  if (result == kCudaNotReady) return false;
  gpu_->driver().check(result, "cuEventQuery");
  return true;
}

double GpuEvent::ms_since(const GpuEvent& earlier) const {
  const Gpu::Scope scope(*gpu_);
  float ms = 0;
  gpu_->driver().check(gpu_->driver().elapsed(&ms, earlier.event_, event_), "cuEventElapsedTime");
  return ms;
}

GpuStream::GpuStream(std::shared_ptr<const Gpu> gpu) : gpu_(std::move(gpu)) {
  const Gpu::Scope scope(*gpu_);
  // Numbers beyond the range of priorities count as its ends.
  constexpr int kHighest = -100;
  const CudaDriver& driver = gpu_->driver();
  driver.check(driver.create_stream(&stream_, kCudaStreamNonBlocking, kHighest),
               "cuStreamCreateWithPriority");
}

GpuStream::~GpuStream() {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().destroy_stream(stream_);
}

void GpuStream::wait_for(const GpuEvent& event) const {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().check(gpu_->driver().wait_event(stream_, event.get(), 0), "cuStreamWaitEvent");
}

bool GpuStream::is_idle() const {
  const Gpu::Scope scope(*gpu_);
  return gpu_->driver().query_stream(stream_) != kCudaNotReady;
}

GpuMemory::GpuMemory(std::shared_ptr<const Gpu> gpu, size_t bytes)
    : gpu_(std::move(gpu)), bytes_(std::max<size_t>(bytes, 1)) {
  const Gpu::Scope scope(*gpu_);
  const CudaResult result = gpu_->driver().allocate(&pointer_, bytes_);
  if (result != kCudaSuccess) {
    const size_t mib = (bytes_ + (size_t{1} << 20) - 1) >> 20;
    throw Error(ErrorCode::kInternal,
                "cannot allocate " + std::to_string(mib) + " MiB on GPU " +
                    std::to_string(gpu_->number()) + ": " + gpu_->driver().describe(result) +
                    "; reduce the framework's share of the memory, for example by a smaller batch "
                    "or torch.cuda.set_per_process_memory_fraction(0.95)");
  }
}

GpuMemory::~GpuMemory() {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().free(pointer_);
}

PinnedMemory::PinnedMemory(std::shared_ptr<const Gpu> gpu, size_t bytes)
    : gpu_(std::move(gpu)), bytes_(std::max<size_t>(bytes, 1)) {
  const Gpu::Scope scope(*gpu_);
  const CudaResult result = gpu_->driver().allocate_pinned(&address_, bytes_, 0);
  if (result != kCudaSuccess) {
    throw Error(ErrorCode::kInternal,
                "cannot allocate " + std::to_string(bytes_) +
                    " bytes of pinned host memory: " + gpu_->driver().describe(result) +
                    "; turn off hierarchical_allreduce, which alone needs it");
  }
}

PinnedMemory::~PinnedMemory() {
  const Gpu::Scope scope(*gpu_);
  gpu_->driver().free_pinned(address_);
}

}  // namespace hvdtune
