#include "runtime/gpu/gpu_graphs.h"

#include <string>
#include <utility>

#include "base/op_table.h"
#include "base/status.h"

namespace hvdtune {

void GpuGraphs::begin_capture() {
  const std::lock_guard lock(mutex_);
  if (capturing_) {
    throw Error(ErrorCode::kUsage,
                "another CUDA graph is being captured; capture one graph at a time");
  }
  capturing_ = true;
}

void GpuGraphs::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = false;
}

void GpuGraphs::check(const Request& request) const {
  const std::string captured = "its stream is being captured into a CUDA graph";
  const std::lock_guard lock(mutex_);
  if (!capturing_) {
    throw Error(ErrorCode::kUsage,
                captured +
                    ", which would hide failures when the graph is launched; in PyTorch, use "
                    "hvdtune.torch.CUDAGraph instead of torch.cuda.CUDAGraph");
  }
  if (row_of(request.op).is_ragged) {
    throw Error(ErrorCode::kUsage, captured + ", but the size of the result of " +
                                       std::string(name_of(request.op)) +
                                       " is known only when it runs; call it outside of the "
                                       "capture");
  }
  if (!sets_.contains(request.process_set)) {
    throw Error(ErrorCode::kUsage,
                captured +
                    ", but its process set has no NCCL communicator yet; before the capture, run "
                    "the same code once with hierarchical_allreduce off");
  }
}

void GpuGraphs::before_replay(CudaStream stream) {
  std::shared_ptr<const GpuEvent> last;
  {
    const std::lock_guard lock(mutex_);
    last = last_task_;
  }
  if (!last) return;
  const Gpu& gpu = *gpu_.get().gpu;
  const Gpu::Scope scope(gpu);
  gpu.driver().check(gpu.driver().wait_event(stream, last->get(), 0), "cuStreamWaitEvent");
}

void GpuGraphs::after_replay(CudaStream stream) {
  auto event = std::make_shared<GpuEvent>(gpu_.get().gpu);
  event->record(stream);
  const std::lock_guard lock(mutex_);
  last_replay_ = untaken_replay_ = std::move(event);
}

bool GpuGraphs::has_replayed() const {
  const std::lock_guard lock(mutex_);
  return !last_replay_ || last_replay_->has_passed();
}

void GpuGraphs::add_set(uint32_t process_set) {
  const std::lock_guard lock(mutex_);
  sets_.insert(process_set);
}

void GpuGraphs::remove_set(uint32_t process_set) {
  const std::lock_guard lock(mutex_);
  sets_.erase(process_set);
}

void GpuGraphs::note_task(std::shared_ptr<const GpuEvent> done) {
  const std::lock_guard lock(mutex_);
  last_task_ = std::move(done);
}

std::shared_ptr<const GpuEvent> GpuGraphs::take_replay() {
  const std::lock_guard lock(mutex_);
  return std::exchange(untaken_replay_, nullptr);
}

}  // namespace hvdtune
