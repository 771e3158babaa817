// A GPU as this process uses it: memory, streams and events of its primary context, which
// frameworks use as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/driver.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread.
class Gpu {
 public:
  // Throws Error(kUsage) if there is no GPU of that number.
  Gpu(std::shared_ptr<CudaDriver> driver, int number);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  int number() const { return number_; }
  // Whether the stream is being captured into a CUDA graph. REQUIRES: the context is current.
  bool is_capturing(CudaStream stream) const;

  // Makes the GPU's context the calling thread's while it lives.
  class Scope {
   public:
    explicit Scope(const Gpu& gpu);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const Gpu& gpu_;
    CudaContext before_ = nullptr;
  };

 private:
  const std::shared_ptr<CudaDriver> driver_;
  const int number_;
  CudaDevice device_ = 0;
  CudaContext context_ = nullptr;
};

// While it lives, the calling thread's calls are not captured and do not disturb a capture. While
// a stream is captured into a CUDA graph, CUDA refuses other threads' queries and allocations and
// ends the capture, unless those threads are in relaxed mode.
class RelaxedCaptureMode {
 public:
  explicit RelaxedCaptureMode(std::shared_ptr<const CudaDriver> driver);
  ~RelaxedCaptureMode();
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;
  RelaxedCaptureMode& operator=(const RelaxedCaptureMode&) = delete;

 private:
  const std::shared_ptr<const CudaDriver> driver_;
  int before_ = kCudaCaptureModeRelaxed;
};

// The following classes free their resources without reporting errors: a broken context frees
// nothing.

class GpuEvent {
 public:
  enum class Timing { kOff, kOn };  // with it, an event costs a little more
  explicit GpuEvent(std::shared_ptr<const Gpu> gpu, Timing timing = Timing::kOff);
  ~GpuEvent();
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;

  CudaEvent get() const { return event_; }
  // Passes when all work that is on the stream now is done.
  void record(CudaStream stream) const;
  bool has_passed() const;
  // REQUIRES: both are timed and have passed.
  double ms_since(const GpuEvent& earlier) const;

 private:
  const std::shared_ptr<const Gpu> gpu_;
  CudaEvent event_ = nullptr;
};

class GpuStream {
 public:
  // Of high priority: it feeds what others wait for.
  explicit GpuStream(std::shared_ptr<const Gpu> gpu);
  ~GpuStream();
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  CudaStream get() const { return stream_; }
  void wait_for(const GpuEvent& event) const;
  // Nothing that was put on it is left to do. True, too, where that cannot be known any more.
  bool is_idle() const;

 private:
  const std::shared_ptr<const Gpu> gpu_;
  CudaStream stream_ = nullptr;
};

class GpuMemory {
 public:
  GpuMemory(std::shared_ptr<const Gpu> gpu, size_t bytes);
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  uint8_t* get() const { return reinterpret_cast<uint8_t*>(pointer_); }
  size_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  CudaPointer pointer_ = 0;
  size_t bytes_;
};

// Host memory that streams copy to and from while the host continues.
class PinnedMemory {
 public:
  PinnedMemory(std::shared_ptr<const Gpu> gpu, size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  uint8_t* get() const { return static_cast<uint8_t*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  const std::shared_ptr<const Gpu> gpu_;
  void* address_ = nullptr;
  size_t bytes_;
};

inline CudaPointer cuda_pointer(const void* address) {
  return reinterpret_cast<CudaPointer>(address);
}

}  // namespace hvdtune
