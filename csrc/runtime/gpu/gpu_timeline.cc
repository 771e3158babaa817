#include "runtime/gpu/gpu_timeline.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace hvdtune {

// Whether the stream is on its way to the wait or there already, only the event shows.
void GpuTimeline::note_wait(CudaStream stream, const std::shared_ptr<GpuWork>& work) {
  if (!recorder_.enabled() || work->in_graph) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(work->is_awaited, true)) return;
  }
  const std::shared_ptr<const Gpu>& gpu = gpu_.get().gpu;
  const Gpu::Scope scope(*gpu);
  if (gpu->is_capturing(stream)) return;
  auto begun = std::make_unique<GpuEvent>(gpu, GpuEvent::Timing::kOn);
  begun->record(stream);
  const std::lock_guard lock(mutex_);
  stream_waits_.push_back({std::move(begun), work});
}

bool GpuTimeline::begin(const GpuTask& task) {
  const bool is_recorded = recorder_.enabled() && !task.records.empty();
  if (is_recorded && !clock_) clock_ = std::make_unique<GpuClock>(gpu_.get().gpu);
  return is_recorded;
}

// The times are the GPU's: from when it could begin, since the tensors had been made. Before its
// clock is known they are the host's.
void GpuTimeline::record(const GpuFlight& flight) {
  if (!flight.begun || !recorder_.enabled()) return;
  const uint64_t now = now_ns();
  const uint64_t end = std::min(clock_->ns_of(*flight.done).value_or(now), now);
  uint64_t begin = std::min(clock_->ns_of(*flight.begun).value_or(flight.begin_ns), end);
  if (flight.task.begun_ns) {
    begin = std::min(begin, *flight.task.begun_ns);
    *flight.task.begun_ns = begin;
  }
  if (!flight.task.completes) return;
  for (const GpuRecord& record : flight.task.records) {
    events_.record(record.kind, begin, end, record.name, record.seq, record.bucket, record.arg);
  }
  for (const auto& operation : flight.task.operations) {
    operation->gpu->done_ns = end;
    operation->gpu->bucket = flight.task.records.front().bucket;
  }
  clock_->keep_in_step();
}

// A stream that comes to its wait after the bucket is done does not wait, and one that has waited
// for a bucket's first operation does not wait for the others.
void GpuTimeline::record_waits() {
  if (!clock_) return;
  for (const auto& [begun, work] : take_ended_waits()) {
    const uint64_t end = work->done_ns;
    if (end == 0 || work->done == last_awaited_) continue;
    last_awaited_ = work->done;
    const uint64_t begin = begun->has_passed() ? clock_->ns_of(*begun).value_or(end) : end;
    events_.record(EventKind::kStreamWait, std::min(begin, end), end, 0, 0, work->bucket, 0);
  }
}

std::vector<GpuTimeline::StreamWait> GpuTimeline::take_ended_waits() {
  // If an operation has failed, or is not recorded, only this has its work in the end.
  const auto is_ahead = [](const StreamWait& wait) {
    return wait.work->done_ns == 0 && wait.work.use_count() > 1;
  };
  std::vector<StreamWait> ended;
  const std::lock_guard lock(mutex_);
  const auto rest = std::stable_partition(stream_waits_.begin(), stream_waits_.end(), is_ahead);
  std::move(rest, stream_waits_.end(), std::back_inserter(ended));
  stream_waits_.erase(rest, stream_waits_.end());
  return ended;
}

}  // namespace hvdtune
