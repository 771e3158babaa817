// The only thread of a rank that calls NCCL.
//
// It puts the collectives that negotiation has answered on hvdtune's own stream, each behind the
// events of the streams that compute its tensors. It does not wait for them, but polls the events
// behind them and the state of every communicator. An operation is complete when its event has
// passed.
//
// If the stream that computes its tensors is being captured, an operation becomes part of the CUDA
// graph instead. For the host it is complete at once. The graph owns the resources that it uses.
//
// When the job fails, the thread issues nothing more and aborts all communicators at once. An
// operation fails only when nothing touches its memory any more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/stop.h"
#include "nccl/collectives.h"
#include "runtime/gpu/gpu_abort.h"
#include "runtime/gpu/gpu_graphs.h"
#include "runtime/gpu/gpu_task.h"
#include "runtime/gpu/gpu_timeline.h"
#include "runtime/gpu/gpu_work.h"
#include "runtime/gpu/rank_gpu.h"
#include "runtime/health/work_counter.h"
#include "runtime/operation.h"
#include "timeline/recorder.h"

namespace hvdtune {

struct GpuOptions {
  bool enabled = false;
  GpuBits bits = GpuBits::kNccl;
  std::string cuda_library;  // preferred ones; empty: those that are found
  std::string nccl_library;
  // The time that aborted communicators may take to release memory; then the process ends.
  std::chrono::nanoseconds abort_timeout = std::chrono::seconds(10);
};

// What the thread uses of the rest of a rank; all of it outlives the thread.
struct GpuServices {
  int rank;
  int local_rank;
  StopSignal& stop;
  const RankLease& lease;
  OperationTable& table;
  WorkCounter& work_counter;
  Recorder& recorder;
  Recorder::EventBuffer& events;       // the thread's own
  std::function<void()> check_member;  // throws if the others have given this rank up
};

class GpuThread {
 public:
  // The maximum number of tasks on the stream. When the job fails, NCCL launches all of them before
  // it ends. And CUDA's queue has room for about a thousand launches: a launch that waits for room
  // cannot be aborted.
  static constexpr size_t kMostFlights = 32;

  // Throws Error(kUsage) if CUDA's driver or NCCL is missing or too old.
  GpuThread(GpuOptions options, const GpuServices& services);
  ~GpuThread();
  // Call it once everything that the thread uses is there.
  void begin();

  // Any thread: for an operation that is about to be submitted. Throws Error(kUsage) for a GPU that
  // is not this rank's, or if the stream is being captured and a graph cannot have the operation.
  std::shared_ptr<GpuWork> prepare(const GpuPlace& place, const Request& request);
  // As GpuTimeline::note_wait.
  void note_wait(CudaStream stream, const std::shared_ptr<GpuWork>& work) {
    timeline_.note_wait(stream, work);
  }
  // All that is put on `stream` from now on comes after the operation. REQUIRES: it is enqueued.
  void make_wait(CudaStream stream, const GpuWork& work);
  // Copies a result there on `stream`, and keeps it until it is copied. REQUIRES: as make_wait.
  void copy(std::shared_ptr<GpuMemory> result, uint8_t* to, size_t bytes, CudaStream stream);

  // Any thread: for captures and launches of CUDA graphs.
  GpuGraphs& graphs() { return graphs_; }
  // Throws the failure of the job. Returns when this rank holds the lease.
  void check_lease();

  // The cycle thread. Memory for results.
  std::shared_ptr<GpuMemory> take(size_t bytes);
  bool has_communicator(uint32_t process_set, bool within_host) const {
    return known_sets_.contains({process_set, within_host});
  }
  GpuBits bits() const { return options_.bits; }
  NcclId make_id();
  // Returns the number of the task: 1, 2, ...
  uint64_t enqueue(GpuTask task);
  // Returns when that task and all before it are complete. Throws failure(), or Error(kShutdown)
  // once the stop signal is raised.
  void await(uint64_t task);
  // The same for everything that was enqueued.
  void drain() { await(enqueued_); }
  void drop_set(uint32_t process_set);
  // Any thread. The failure of this thread, which has then raised the stop signal.
  std::optional<Error> failure() const;
  // REQUIRES: the stop signal is raised. Returns when nothing touches an operation's memory any
  // more.
  void abandon();

  // Leaves the communicators together with the other ranks, unless the job has failed. REQUIRES:
  // the cycle thread has ended.
  void shut_down();

 private:
  using Job = std::function<void()>;
  // A process set, and whether only its ranks on this host.
  using CommunicatorKey = std::pair<uint32_t, bool>;

  void check() const;
  void run();
  void turn();
  void start(GpuTask task);
  void capture(GpuTask task, GpuCollectives& collectives);
  void leave(GpuCollectives& collectives);
  void end_task();
  GpuCollectives& collectives_of(const GpuTask& task);
  bool reap();
  void complete(const GpuFlight& flight);
  void note_next();
  static void note(const GpuTask& task, GpuProgress progress);
  void end_with(const Error& error);
  void abort_all();
  void post(Job job);
  void take_jobs();
  bool has_jobs() const;
  bool is_leaving() const;
  void sleep();

  const GpuOptions options_;
  const GpuServices services_;
  const std::shared_ptr<CudaDriver> driver_;
  const std::shared_ptr<NcclLibrary> nccl_;
  RankGpu gpu_;           // has a lock of its own
  GpuGraphs graphs_;      // has a lock of its own
  GpuTimeline timeline_;  // the thread's own; a lock for what any thread may call
  const GpuAbort abort_;
  std::set<CommunicatorKey> known_sets_;  // the cycle thread's
  uint64_t enqueued_ = 0;                 // tasks; the cycle thread's, too

  // The thread's own.
  std::optional<Gpu::Scope> current_;  // from its first task on
  std::optional<RelaxedCaptureMode> relaxed_;
  std::shared_ptr<KernelLauncher> kernels_;    // graphs have it, too
  std::unique_ptr<GpuStream> capture_stream_;  // from the first task that is captured on
  std::map<CommunicatorKey, std::unique_ptr<GpuCollectives>> sets_;
  std::deque<Job> waiting_jobs_;   // until there is room on the stream
  std::deque<GpuFlight> flights_;  // in the order of the stream
  uint64_t pause_ns_ = 0;

  WakeSignal wake_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::vector<Job> jobs_;
  uint64_t completed_ = 0;  // tasks
  bool leaving_ = false;
  bool ended_ = false;  // nothing touches memory any more
  std::optional<Error> failure_;

  std::thread thread_;
};

}  // namespace hvdtune
