// The thread that negotiates and communicates: the progress engine of a rank. Whoever holds
// `progress_mutex_` is the only one that touches links, the arena, the cache and what has been
// announced.
//
// A step of progress (make_progress) takes what the children in the negotiation tree announce, adds
// what is new on this rank, and tells the parent what is then complete from here down; the root
// answers with a cycle, which every rank passes on to its children and carries out. Between steps
// the thread sleeps until a message, new work or the end of a window; with nothing to do it sleeps
// without a timeout.
//
// Where every rank has a processor, a caller that waits makes progress itself until what it waits
// for has ended: an operation that everybody waits for then wakes up no other thread. So that
// it may, the thread keeps out of its way for a grace period after a caller was served: it watches
// no connection, and submitted work does not wake it. A grace period is short, and the thread makes
// progress at its end whatever happens.
#pragma once

#include <poll.h>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "negotiate/negotiator.h"
#include "negotiate/process_sets.h"
#include "negotiate/response_cache.h"
#include "negotiate/window.h"
#include "runtime/cpu_time_meter.h"
#include "runtime/executor.h"
#include "runtime/framed_channel.h"
#include "runtime/health/health.h"
#include "runtime/knob_board.h"
#include "runtime/operation.h"
#include "runtime/services.h"
#include "runtime/step_collector.h"
#include "runtime/step_switch.h"
#include "runtime/tree_channels.h"

namespace hvdtune {

struct CycleOptions {
  Setting setting;
  LogLevel log_level = LogLevel::kWarning;
  BackendSource* backends = nullptr;  // of collectives in place of ours; outlives the thread
  // Does what the launcher asks of the timeline, without waiting; says why it cannot, "" if it can.
  std::function<std::string(const TimelineOrder&)> timeline = {};
  AfterJoin after_join = AfterJoin::kPossible;  // rank 0's counts
};

// Counters since start; plain numbers for a person or a test.
struct CycleCounts {
  uint64_t cycles = 0;
  uint64_t tensors = 0;
  uint64_t buckets = 0;
  uint64_t cached_announcements = 0;
  uint64_t full_announcements = 0;
  ControlTraffic traffic;
};

// The launcher numbers its proposals from 1 on, apart from those of scripts.
inline constexpr uint32_t kFirstScriptVersion = uint32_t{1} << 30;

// Thread rule: public members may be called from any thread.
class CycleThread {
 public:
  CycleThread(const Services& services, const CycleOptions& options);
  ~CycleThread();

  // New operations are in the table.
  void work_added();
  // A caller waits for an operation, so collecting more would only delay it. Returns when it has
  // ended, or when waiting for it is all that is left to do.
  void progress_for_caller(const std::function<bool()>& has_ended, Deadline deadline);
  // The same, without making progress here and without waiting.
  void wake_for_callers();
  // `use` is what the calling thread had of processors in the step, outside of its waits. Waits
  // where values of the script are about to change, see StepSwitch.
  void mark_step(CpuTime use);
  // Tells the launcher which knobs the script has. Without effect where there is none, and on other
  // ranks than 0.
  void declare(const std::string& knobs);
  // Rank 0 only. Returns the version under which it will be adopted.
  uint32_t propose(const Setting& setting);
  Setting setting() const;
  uint32_t version() const;
  // The values of the script's knobs, and their version, for the step that its thread is in.
  std::vector<ScriptValue> script_values() const { return step_switch_.values(); }
  uint32_t script_version() const { return step_switch_.version(); }
  CycleCounts counts() const;
  // The sets after the last cycle that this rank has carried out. Never null.
  std::shared_ptr<const ProcessSets> process_sets() const;

  // Tells the other ranks that this one leaves, and ends the thread.
  void shut_down();
  // Bytes that neighbours in the negotiation tree have not received. REQUIRES: shut_down() has
  // returned.
  size_t undelivered_bytes() { return tree_.undelivered_bytes(); }

 private:
  struct Marked {
    uint64_t step;
    uint64_t begin_ns;
    uint64_t end_ns;
    bool sampled;
    CpuTime use;
    uint32_t script_version;
  };
  enum class Interest : int { kNone, kNewWork, kWaiting };
  struct Wake {
    uint64_t at_ns;
    Interest interest;
  };

  void run();
  bool progress_in_caller(const std::function<bool()>& has_ended, Deadline deadline);
  void make_progress();
  Error behind(const Error& error) const;
  void fail(const Error& seen);
  void take_back_memory(int lost);
  void announce();
  bool is_due(bool everybody, uint64_t now) const;
  void submit_own(bool waits, uint64_t now);
  void send_up(std::vector<PendingRequest> entries, std::vector<int32_t> leaving);
  void take_marks(Announce& own);
  void receive();
  void take_announce(size_t branch, const Announce& announce);
  void take_step(const StepMark& mark);
  void take_hold(const StepHold& hold);
  void choose_setting(Cycle& cycle);
  void adopt(const Cycle& cycle, uint64_t now);
  void receive_orders();
  void emit();
  Cycle compose_cycle(uint64_t now);
  CutReason reason_to_emit() const;
  void apply_order(const TimelineOrder& order);
  void apply(Cycle cycle);
  void change(const Response& response);
  void on_rank_left(int rank);
  void announce_departures(const std::vector<int32_t>& ranks);
  void shutdown_handshake();
  bool has_left(int rank) const;
  bool can_emit() const {
    return is_root() && left_ranks_.empty() && (negotiator_->has_ready() || is_urgent());
  }
  // Something is to be told to all ranks at once.
  bool is_urgent() const { return !timeline_.empty() || board_.can_switch(); }
  OutgoingBatch cycle_batch() const;
  void send_to_launcher(FrameKind kind, Bytes payload);
  void disconnect_launcher();
  bool wait_is_news();
  std::vector<pollfd> poll_set() const;
  uint64_t prepare_sleep(bool grace_period);
  bool caller_has_progressed() const;
  bool is_watched() const;
  bool spin(uint64_t until) const;
  void sleep(std::unique_lock<std::mutex>& progress_lock, uint64_t until);
  void wait_grace_period(std::unique_lock<std::mutex>& progress_lock);
  Wake next_wake() const;
  bool is_root() const { return rank_ == 0; }
  bool rank_waits() const { return table_.waiting_threads() > 0; }
  PendingRequests& pending_requests() {
    return is_root() ? negotiator_->pending_requests() : *pending_requests_;
  }

  const int rank_;
  const int size_;
  const CycleOptions options_;
  Mesh& mesh_;
  OperationTable& table_;
  Health& health_;
  GpuThread* const gpu_;
  StopSignal& stop_;
  Recorder& recorder_;
  Recorder::EventBuffer& events_;

  const bool may_spin_;              // every rank of this host has a processor
  const uint64_t spin_ns_;           // how long a caller that waits spins
  const bool callers_may_progress_;  // and callers may make progress

  std::mutex progress_mutex_;  // held while progress is made; guards what follows
  TreeChannels tree_;
  std::unique_ptr<FramedChannel> job_;  // rank 0's, to the launcher
  ProcessSets sets_;
  ResponseCache cache_;
  std::optional<Negotiator> negotiator_;             // the root's
  std::optional<PendingRequests> pending_requests_;  // everybody else's
  Executor executor_;
  KnobBoard board_;
  StepCollector step_collector_;
  std::vector<std::shared_ptr<Operation>> unannounced_;
  size_t unannounced_bytes_ = 0;
  std::vector<StepMark> steps_;  // to be passed on
  std::vector<StepHold> holds_;  // to be passed on at once
  bool announced_waiting_ = false;
  uint64_t last_announce_ns_ = 0;
  uint64_t last_emit_ns_ = 0;
  uint64_t cycles_applied_ = 0;
  std::vector<int32_t> left_ranks_;
  std::deque<TimelineOrder> timeline_;  // the root's: to be passed on
  bool has_served_ = false;             // callers waited for what the thread has just completed
  bool in_grace_period_ = false;        // the thread will make progress at its end
  bool ended_ = false;                  // nobody makes progress any more
  std::vector<pollfd> watched_;         // what the thread sleeps with

  // Shared.
  WakeSignal wake_;
  std::atomic<Interest> interest_{Interest::kNone};
  std::atomic<bool> leaving_{false};
  std::atomic<uint64_t> caller_progress_ns_{0};  // when a caller last made progress
  mutable std::mutex mutex_;                     // guards the rest
  std::vector<Marked> marks_;
  uint64_t next_step_ = 0;
  uint64_t last_mark_ns_ = 0;
  bool step_sampled_ = false;  // from its begin
  std::vector<Proposal> proposals_;
  std::vector<std::string> declarations_;
  uint32_t next_version_ = kFirstScriptVersion;
  Setting shown_setting_;
  uint32_t shown_version_ = 0;
  CycleCounts counts_;
  std::shared_ptr<const ProcessSets> shown_sets_;
  StepSwitch step_switch_;  // has a lock of its own

  std::thread thread_;
};

}  // namespace hvdtune
