// The thread that talks to NCCL, the only one of a rank that does.
//
// It puts the collectives that negotiation has answered on a stream of hvdtune's own, each behind
// the events of those who made the tensors, and does not wait for them: it polls the events behind
// them, and the state of every communicator. The operation is complete when its event has passed.
//
// An operation whose tensors are made on a stream that is being captured becomes part of the CUDA
// graph instead, and is complete for the host when it is. The graph keeps what it uses of
// hvdtune's.
//
// Whatever ends the job ends them: the thread then issues nothing more and gives up all
// communicators at once. An operation fails only when nothing touches its memory any more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
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
#include "device/gpu_clock.h"
#include "nccl/collectives.h"
#include "runtime/gpu/gpu_work.h"
#include "runtime/health/work_counter.h"
#include "runtime/operation.h"
#include "timeline/recorder.h"

namespace hvdtune {

struct GpuOptions {
  bool enabled = false;
  GpuBits bits = GpuBits::kNccl;
  std::string cuda_library;  // preferred ones; empty: those that are found
  std::string nccl_library;
  // How long communicators that were given up may take to let go of memory; then the process ends.
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

// A record of the timeline whose times are known when the operation is complete.
struct GpuRecord {
  EventKind kind;
  uint32_t name;
  uint32_t seq;
  uint32_t bucket;
  uint32_t arg;
};

// A bucket.
struct GpuTask {
  uint32_t process_set = 0;
  bool within_host = false;  // among the ranks of the set that are on this host
  std::optional<NcclId> id;  // of the communicator, if this is its first task
  int size = 1;              // of the communicator; and this rank's number in it
  int rank = 0;
  bool in_graph = false;
  GpuOrder order;
  std::vector<GpuCall> calls;
  std::vector<std::shared_ptr<Operation>> operations;  // without those of ranks that have joined
  std::vector<std::shared_ptr<GpuMemory>> memory;      // besides, kept until it is complete
  std::vector<GpuRecord> records;
  bool completes = true;  // its operations; otherwise a later task does
  // Where several tasks carry out one bucket: the number that all have the address of, when the
  // earliest of those with records began. Only the GPU's thread uses it.
  std::shared_ptr<uint64_t> begun_ns = {};
};

class GpuThread {
 public:
  // So many buckets are on the stream at a time. When the job fails, each has still to be launched
  // before it ends; and CUDA's own queue has room for about a thousand launches, of which one that
  // waits for room cannot be given up.
  static constexpr size_t kMostFlights = 32;

  // Throws Error(kUsage) with a sentence where CUDA's driver or NCCL is missing or too old.
  GpuThread(GpuOptions options, const GpuServices& services);
  ~GpuThread();
  // Call it once everything that the thread uses is there.
  void begin();

  // Any thread: for an operation that is about to be submitted. Throws Error(kUsage) for a GPU that
  // is not this rank's, and where the stream is being captured and no graph can have the operation.
  std::shared_ptr<GpuWork> prepare(const GpuPlace& place, const Request& request);
  // The caller is going to let a stream wait for the operation, which is recorded if all is. Only
  // the first call for an operation counts.
  void note_wait(CudaStream stream, const std::shared_ptr<GpuWork>& work);
  // What `stream` is given from now on comes after the operation. REQUIRES: it is enqueued.
  void make_wait(CudaStream stream, const GpuWork& work);
  // Copies a result there on `stream`, and keeps it until it is copied. REQUIRES: as make_wait.
  void copy(std::shared_ptr<GpuMemory> result, uint8_t* to, size_t bytes, CudaStream stream);

  // Any thread. Between them, operations may be captured. begin_capture() throws Error(kUsage)
  // while another graph is captured.
  void begin_capture();
  void end_capture();
  // Around the launch of a graph with such operations on `stream`. All operations that were
  // enqueued before come before it, and all that are enqueued later after it, as the other ranks
  // have it, too.
  void before_replay(CudaStream stream);
  void after_replay(CudaStream stream);
  // Whether all launches are done.
  bool has_replayed() const;
  // Throws what the job has ended with. Returns once the others surely count on this rank.
  void check_lease();

  // The cycle thread. Memory for results.
  std::shared_ptr<GpuMemory> take(size_t bytes);
  bool has_communicator(uint32_t process_set, bool within_host) const {
    return known_sets_.contains({process_set, within_host});
  }
  GpuBits bits() const { return options_.bits; }
  NcclId make_id();
  // Returns the number of the task, which counts them.
  uint64_t enqueue(GpuTask task);
  // Returns when that task and all before it are complete; throws what has befallen the thread, or
  // Error(kShutdown) once the stop signal is raised.
  void await(uint64_t task);
  // The same for everything that was enqueued.
  void drain() { await(enqueued_); }
  void drop_set(uint32_t process_set);
  // What has befallen the thread, which then has raised the stop signal; nothing if all is well.
  // Any thread.
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
  // Tasks of the stream that are not complete, in order.
  struct Flight {
    GpuTask task;
    std::shared_ptr<GpuEvent> done;
    uint64_t begin_ns;
    std::unique_ptr<GpuEvent> begun;  // when all tensors had been made; null where nobody records
  };
  // A stream waits for an operation: it has nothing else to do once `begun` has passed.
  struct StreamWait {
    std::unique_ptr<GpuEvent> begun;
    std::shared_ptr<GpuWork> work;
  };
  // Made with the first tensor, on its GPU.
  struct Place {
    explicit Place(const std::shared_ptr<const Gpu>& its) : gpu(its), stream(its), pool(its) {}
    std::shared_ptr<const Gpu> gpu;
    GpuStream stream;
    GpuMemoryPool pool;
  };

  Place& place(int number);
  void check() const;
  void run();
  void turn();
  void start(GpuTask task);
  void capture(GpuTask task, GpuCollectives& collectives);
  void check_can_be_captured(const Request& request);
  void leave(GpuCollectives& collectives);
  void end_task();
  std::shared_ptr<const GpuEvent> take_replayed();
  GpuCollectives& collectives_of(const GpuTask& task);
  bool reap();
  static void note(const GpuTask& task, GpuProgress progress);
  void record(const Flight& flight);
  void record_waits();
  void end_with(const Error& error);
  void abort_all();
  std::vector<std::future<void>> begin_aborts();
  void await_idle(std::chrono::steady_clock::time_point until, const char* otherwise,
                  const std::function<bool()>& is_idle);
  [[noreturn]] void give_up(const std::string& why) const;
  void post(Job job);
  void take_jobs();
  void sleep();

  const GpuOptions options_;
  const GpuServices services_;
  const std::shared_ptr<CudaDriver> driver_;
  const std::shared_ptr<NcclLibrary> nccl_;
  std::set<CommunicatorKey> known_sets_;  // the cycle thread's
  uint64_t enqueued_ = 0;                 // tasks; the cycle thread's, too

  // The thread's own.
  std::optional<Gpu::Scope> current_;  // from its first task on
  std::optional<RelaxedCaptureMode> relaxed_;
  std::shared_ptr<KernelLauncher> kernels_;    // graphs have it, too
  std::unique_ptr<GpuStream> capture_stream_;  // from the first task that is captured on
  std::unique_ptr<GpuClock> clock_;            // from the first task that is recorded on
  std::shared_ptr<GpuEvent> last_awaited_;     // of the bucket whose wait was recorded last
  std::map<CommunicatorKey, std::unique_ptr<GpuCollectives>> sets_;
  std::deque<Job> waiting_jobs_;  // until there is room on the stream
  std::deque<Flight> flights_;
  uint64_t pause_ns_ = 0;

  WakeSignal wake_;
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::unique_ptr<Place> place_;
  std::vector<Job> jobs_;
  uint64_t completed_ = 0;                    // tasks
  std::set<uint32_t> met_sets_;               // process sets that have a communicator
  bool capturing_ = false;                    // see begin_capture()
  std::shared_ptr<GpuEvent> last_done_;       // of the task that was put on the stream last
  std::shared_ptr<const GpuEvent> replayed_;  // before which nothing more is put there
  std::shared_ptr<const GpuEvent> last_replay_;
  std::vector<StreamWait> stream_waits_;  // that are not recorded yet
  bool leaving_ = false;
  bool ended_ = false;  // nothing touches memory any more
  std::optional<Error> failure_;

  std::thread thread_;
};

}  // namespace hvdtune
