// The part of an operation that only tensors in a GPU's memory need.
#pragma once

#include <atomic>
#include <memory>

#include "device/gpu.h"
#include "wire/report.h"

namespace hvdtune {

// The GPU of an operation's tensors, and the stream that computes them.
struct GpuPlace {
  int number = -1;  // as CUDA counts in this process; -1: the host's memory
  CudaStream stream = nullptr;
};

struct GpuWork {
  explicit GpuWork(const std::shared_ptr<const Gpu>& gpu) : ready(gpu) {}

  GpuEvent ready;                  // passes when the tensors are computed
  bool in_graph = false;           // their stream is being captured into a CUDA graph
  std::shared_ptr<GpuEvent> done;  // recorded when the operation is put on hvdtune's stream; shared
                                   // by the operations of a bucket
  uint64_t done_ns = 0;     // when its bucket was done, once that is recorded; the GPU's thread's
  uint32_t bucket = 0;      // its number, set with it
  bool is_awaited = false;  // by a stream; GpuTimeline guards it
  std::atomic<GpuProgress> progress = GpuProgress::kNone;  // set by the GPU's thread
};

}  // namespace hvdtune
