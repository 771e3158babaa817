// What the timeline shows of GPUs: when buckets ran there, and which streams waited for them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device/gpu_clock.h"
#include "runtime/gpu/gpu_task.h"
#include "runtime/gpu/gpu_work.h"
#include "runtime/gpu/rank_gpu.h"
#include "timeline/recorder.h"

namespace hvdtune {

// Thread rule: note_wait() may be called from any thread; the rest belongs to the GPU's thread.
class GpuTimeline {
 public:
  // All of it must outlive this.
  GpuTimeline(const Recorder& recorder, Recorder::EventBuffer& events, RankGpu& gpu)
      : recorder_(recorder), events_(events), gpu_(gpu) {}

  // The caller is going to let a stream wait for the operation, which is recorded if all is. Only
  // the first call for an operation counts.
  void note_wait(CudaStream stream, const std::shared_ptr<GpuWork>& work);

  // Whether a task that begins now is recorded: its events must be timed then.
  bool begin(const GpuTask& task);
  // REQUIRES: the flight is complete.
  void record(const GpuFlight& flight);
  void record_waits();
  // Lets go of what needs the GPU's context.
  void close() { clock_.reset(); }

 private:
  // A stream waits for an operation: it has nothing else to do once `begun` has passed.
  struct StreamWait {
    std::unique_ptr<GpuEvent> begun;
    std::shared_ptr<GpuWork> work;
  };
  std::vector<StreamWait> take_ended_waits();

  const Recorder& recorder_;
  Recorder::EventBuffer& events_;  // the GPU's thread's
  RankGpu& gpu_;

  // The GPU's thread's.
  std::unique_ptr<GpuClock> clock_;         // from the first task that is recorded on
  std::shared_ptr<GpuEvent> last_awaited_;  // of the bucket whose wait was recorded last

  std::mutex mutex_;                      // guards what follows, and GpuWork::is_awaited
  std::vector<StreamWait> stream_waits_;  // that are not recorded yet
};

}  // namespace hvdtune
