// Which operations CUDA graphs can have, and when such graphs are launched.
//
// The launches of a graph and the tasks on hvdtune's stream run in the order in which this rank
// begins them, since the other ranks have them in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>

#include "device/gpu.h"
#include "runtime/gpu/rank_gpu.h"
#include "wire/message.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread; mutex_ guards all that changes.
class GpuGraphs {
 public:
  // `gpu` must outlive this.
  explicit GpuGraphs(RankGpu& gpu) : gpu_(gpu) {}

  // Between them, operations may be captured. begin_capture() throws Error(kUsage) while another
  // graph is captured.
  void begin_capture();
  void end_capture();
  // Throws Error(kUsage) unless a graph can have the operation now.
  void check(const Request& request) const;

  // Around the launch of a graph with such operations on `stream`: it waits for all tasks that
  // were put on hvdtune's stream before, and all that follow wait for it.
  void before_replay(CudaStream stream);
  void after_replay(CudaStream stream);
  // Whether all launches are done.
  bool has_replayed() const;

  // The process set has a communicator, or no longer has one.
  void add_set(uint32_t process_set);
  void remove_set(uint32_t process_set);
  // `done` is recorded behind the task that was put on hvdtune's stream last.
  void note_task(std::shared_ptr<const GpuEvent> done);
  // The launch that the next task has to wait for; null if an earlier task does.
  std::shared_ptr<const GpuEvent> take_replay();

 private:
  RankGpu& gpu_;
  mutable std::mutex mutex_;
  bool capturing_ = false;
  std::set<uint32_t> sets_;  // process sets that have a communicator
  std::shared_ptr<const GpuEvent> last_task_;
  std::shared_ptr<const GpuEvent> last_replay_;
  std::shared_ptr<const GpuEvent> untaken_replay_;  // no task waits for it yet
};

}  // namespace hvdtune
