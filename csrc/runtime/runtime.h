// One rank of a job: owns its connections, its threads and everything they share.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/knob.h"
#include "base/log.h"
#include "mpi/backend.h"
#include "runtime/cycle_thread.h"
#include "runtime/gpu/gpu_thread.h"
#include "runtime/health/hang_detector.h"
#include "runtime/health/health.h"
#include "runtime/health/work_counter.h"
#include "runtime/inflight_counter.h"
#include "runtime/operation.h"
#include "runtime/runtime_guard.h"
#include "runtime/user_thread_recorder.h"
#include "timeline/recorder.h"
#include "transport/mesh.h"

namespace hvdtune {

struct TimelineOptions {
  std::string path;        // empty: not recorded from the start
  uint64_t max_bytes = 0;  // 0: no cap
  WhenFull when_full = WhenFull::kRing;
  StepWindow steps;
};

struct RuntimeOptions {
  MeshOptions mesh;
  Setting setting;
  std::chrono::nanoseconds heartbeat_timeout = HealthOptions{}.timeout;
  HangOptions hang;
  LogLevel log_level = LogLevel::kWarning;
  TimelineOptions timeline;
  std::string version;   // of the package, for the timeline's metadata
  bool launched = true;  // the rendezvous server stays, to steer the job and hear of it
  std::shared_ptr<MpiCommunicator> mpi;  // carries out the collectives if given
  GpuOptions gpu;
  AfterJoin after_join = AfterJoin::kPossible;  // rank 0's counts
};

// What a caller asks for. Memory is the caller's and must live until the operation is done.
struct Submission {
  std::shared_ptr<const Request> request;
  std::vector<TensorMemory> memory;  // one per tensor; no outputs for allgather and alltoall
  GpuPlace gpu;                      // of all of the memory, if the request is for one
  bool awaited = false;              // the script waits for it, on whatever thread
  bool patient = false;              // see Operation
  std::string title;                 // what it is called in this rank's trace, "": by its name
  OnEnqueued on_enqueued;            // see Operation
};

// Thread rule: every member may be called from any thread, shutdown() by one.
class Runtime {
 public:
  // Returns when all ranks of the job have come. Throws what connect_mesh throws.
  explicit Runtime(const RuntimeOptions& options);
  ~Runtime();

  const Topology& topology() const { return mesh_.topology; }
  // By which ways are chosen, and whether this rank has measured them for this job.
  const HostCosts& host_costs() const { return mesh_.costs; }
  bool has_measured_costs() const { return mesh_.costs_are_new; }

  // Memory that other ranks of the host can reach: collectives on it need not copy.
  std::unique_ptr<Pool::Allocation> allocate_shared(size_t bytes) {
    return mesh_.pool->allocate(bytes);
  }

  // All or none. Throws Error(kUsage) for what no rank could ever do, Error(kDuplicateName), or the
  // error the job ended with.
  std::vector<Handle> submit(std::vector<Submission> submissions);
  // One operation without a handle: on_end is called when it has ended. Throws what the other
  // overload throws, and then never calls on_end.
  void submit(Submission submission, OnEnd on_end);
  // The script waits until every operation that was submitted with an on_end has ended, or has told
  // its on_enqueued.
  void await_submitted();
  bool poll(Handle handle) const { return table_.poll(handle); }
  // False when `time` has passed; throws what the operation failed with.
  bool wait(Handle handle, std::chrono::nanoseconds time);
  // An operation on tensors of a GPU has been negotiated and put on hvdtune's stream, and what
  // `stream` is given from now on comes after it: the host does not wait for the GPU. The handle
  // stays, and so must the memory until it is done. As wait() besides.
  bool wait_on_stream(Handle handle, CudaStream stream, std::chrono::nanoseconds time);
  // The same for an operation that has told its on_enqueued.
  void make_wait(const Operation& operation, CudaStream stream);
  // Operations on tensors that are made on a captured stream become part of a CUDA graph between
  // the first two. The first throws Error(kUsage) where that cannot be, and waits until the
  // operations before are on the GPU: what NCCL starts there while a stream is captured may end the
  // capture. The next two belong around every launch of such a graph: what was submitted before it
  // comes before it on the GPU, and what is submitted later after it. False when `time` has passed:
  // nothing has been done then. Whether what was launched has succeeded is known once the GPU is
  // done with it and check_gpu() has returned; that and before_replay() throw what the job has
  // ended with.
  bool begin_capture(std::chrono::nanoseconds time);
  bool end_capture(std::chrono::nanoseconds time);
  bool before_replay(CudaStream stream, std::chrono::nanoseconds time);
  void after_replay(CudaStream stream);
  void check_gpu();
  // Returns when every operation on a GPU has succeeded, and what was launched before
  // after_replay(); throws what the job has ended with. False when `time` has passed.
  bool await_gpu(std::chrono::nanoseconds time);
  // Copies a result to the GPU's memory at `to`, on `stream`. REQUIRES: wait(), wait_on_stream() or
  // make_wait() has returned.
  void copy_result(Operation& operation, size_t index, uint8_t* to, CudaStream stream);
  std::shared_ptr<Operation> release(Handle handle) { return table_.release(handle); }
  // See OperationTable.
  bool watch(Handle handle, std::function<void()> on_done) {
    return table_.watch(handle, std::move(on_done));
  }
  void note_blocked_threads(int count) { table_.note_blocked_threads(count); }

  void mark_step() {
    cycle_->mark_step(user_threads_.end_step());
    user_threads_.begin_step();
  }
  // For the timeline: the script did `name` from begin_ns to end_ns, by CLOCK_MONOTONIC.
  void mark_span(const std::string& name, uint64_t begin_ns, uint64_t end_ns) {
    user_threads_.span(name, begin_ns, end_ns);
  }
  uint32_t propose(const Setting& setting) { return cycle_->propose(setting); }
  Setting setting() const { return cycle_->setting(); }
  uint32_t version() const { return cycle_->version(); }
  // See CycleThread.
  void declare(const std::string& knobs) { cycle_->declare(knobs); }
  std::vector<ScriptValue> script_values() const { return cycle_->script_values(); }
  uint32_t script_version() const { return cycle_->script_version(); }
  CycleCounts counts() const { return cycle_->counts(); }
  std::shared_ptr<const ProcessSets> process_sets() const { return cycle_->process_sets(); }

  // For threads that may outlive this object.
  std::shared_ptr<const RuntimeGuard> guard() const { return guard_; }

  // Throw what Recorder::start throws. stop_timeline() logs what the file has not taken.
  void start_timeline(const TimelineOptions& options);
  void stop_timeline();
  // The job has ended, or is ending, because a rank was lost.
  bool has_lost_a_rank() const { return loss().has_value(); }
  std::optional<Error> loss() const { return health_->loss(); }
  uint64_t timeline_dropped() const { return recorder_.dropped(); }
  bool is_recording() const { return recorder_.enabled(); }

  // Fails what is pending, tells the other ranks that this one leaves, ends all threads, and
  // returns once the others' machines have all that this rank sent, or do not answer. Idempotent.
  void shutdown();

 private:
  // Fills in what the caller left open. Throws Error(kUsage) for what no rank could carry out.
  void settle(Submission& submission, const ProcessSets& sets) const;
  std::shared_ptr<GpuWork> prepare_gpu(const Submission& submission) const;
  GpuThread& require_gpu() const;
  GpuServices gpu_services();
  bool wait(Handle handle, bool enqueued, std::chrono::nanoseconds time);
  std::vector<Handle> add(std::vector<Submission> submissions, const OnEnd& on_end);
  void end_of_submitted();
  size_t undelivered_bytes() const;
  std::chrono::nanoseconds delivery_timeout() const;
  std::string apply_order(const TimelineOrder& order);
  RecorderOptions recording(const TimelineOptions& options) const;
  std::string metadata(const TimelineOptions& options) const;

  const RuntimeOptions options_;
  StopSignal stop_;
  RankLease lease_;
  Mesh mesh_;
  std::unique_ptr<BackendSource> backends_;
  Recorder recorder_;
  Recorder::EventBuffer& cycle_events_;
  Recorder::EventBuffer& health_events_;
  Recorder::EventBuffer& gpu_events_;
  UserThreadRecorder user_threads_;
  InflightCounter inflight_;
  OperationTable table_;
  WorkCounter work_counter_;
  std::unique_ptr<HangDetector> hang_detector_;
  std::unique_ptr<Health> health_;
  std::unique_ptr<GpuThread> gpu_;
  std::unique_ptr<CycleThread> cycle_;
  bool is_shut_down_ = false;  // shutdown()'s
  const std::shared_ptr<RuntimeGuard> guard_ = std::make_shared<RuntimeGuard>(*this);
};

}  // namespace hvdtune
