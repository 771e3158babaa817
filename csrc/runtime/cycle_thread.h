// The progress engine of a rank: the thread that negotiates and communicates, and its wake-ups.
//
// The holder of `progress_mutex_` makes progress. No other thread touches links, the arena, the
// cache or the announced operations. Between steps the thread sleeps until a message, new work or
// the end of a window. An idle thread sleeps without a timeout.
//
// Where every rank has a processor, a caller that waits makes progress itself until its operation
// has ended. Such an operation then wakes up no other thread. For a grace period after a caller was
// served, the thread leaves progress to callers: it watches no connection, and submitted work does
// not wake it. A grace period is short, and the thread always makes progress at its end.
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"
#include "runtime/cpu_time_meter.h"
#include "runtime/health/health.h"
#include "runtime/negotiation.h"
#include "runtime/operation.h"
#include "runtime/services.h"
#include "runtime/steering/launcher_link.h"
#include "runtime/steering/steering.h"

namespace hvdtune {

struct CycleOptions {
  Setting setting;
  LogLevel log_level = LogLevel::kWarning;
  BackendSource* backends = nullptr;  // replaces our collectives; outlives the thread
  ApplyTimelineOrder timeline = {};
  AfterJoin after_join = AfterJoin::kPossible;  // rank 0's applies
};

// Thread rule: public members may be called from any thread.
class CycleThread {
 public:
  CycleThread(const Services& services, const CycleOptions& options);
  ~CycleThread();

  // New operations are in the table.
  void work_added();
  // A caller waits for an operation: collecting more would only delay it. Returns when it has
  // ended, or when the caller can only wait.
  void progress_for_caller(const std::function<bool()>& has_ended, Deadline deadline);
  // The same, without making progress here and without waiting.
  void wake_for_callers();
  // `use` is the processor time of the calling thread in the step, outside of its waits. Waits at a
  // step boundary where values of the script are about to change; see StepSwitch.
  void mark_step(CpuTime use) { steering_.mark_step(use); }
  // Reports the script's knobs to the launcher. No effect without a launcher or on other ranks
  // than 0.
  void declare(const std::string& knobs);
  // Rank 0 only. Returns the version of the proposed setting.
  uint32_t propose(const Setting& setting);
  Setting setting() const { return steering_.setting(); }
  uint32_t version() const { return steering_.version(); }
  // The values of the script's knobs, and their version, in the script's current step.
  std::vector<ScriptValue> script_values() const { return steering_.script_values(); }
  uint32_t script_version() const { return steering_.script_version(); }
  CycleCounts counts() const { return negotiation_.counts(); }
  // The sets after the last cycle that this rank has carried out. Never null.
  std::shared_ptr<const ProcessSets> process_sets() const { return negotiation_.process_sets(); }

  // Announces to the other ranks that this one leaves, and ends the thread.
  void shut_down();
  // Bytes that neighbours in the negotiation tree have not received. REQUIRES: shut_down() has
  // returned.
  size_t undelivered_bytes() { return negotiation_.undelivered_bytes(); }

 private:
  void run();
  bool progress_in_caller(const std::function<bool()>& has_ended, Deadline deadline);
  void make_progress();
  Error behind(const Error& error) const;
  void fail(const Error& seen);
  void take_back_memory(int lost);
  std::vector<pollfd> poll_set() const;
  uint64_t prepare_sleep(bool grace_period);
  bool caller_has_progressed() const;
  bool is_watched() const;
  bool spin(uint64_t until) const;
  void sleep(std::unique_lock<std::mutex>& progress_lock, uint64_t until);
  void wait_grace_period(std::unique_lock<std::mutex>& progress_lock);
  bool rank_waits() const { return table_.waiting_threads() > 0; }

  const int rank_;
  const int size_;
  const LogLevel log_level_;
  Mesh& mesh_;             // the progress lock's
  OperationTable& table_;  // has a lock of its own
  Health& health_;         // has a lock of its own
  GpuThread* const gpu_;   // has a lock of its own
  StopSignal& stop_;       // any thread may raise it

  const bool may_spin_;              // every rank of this host has a processor
  const uint64_t spin_ns_;           // the time that a waiting caller spins
  const bool callers_may_progress_;  // waiting callers may make progress

  std::mutex progress_mutex_;     // held while progress is made
  LauncherLink launcher_;         // guarded by progress_mutex_
  Steering steering_;             // has a lock of its own for members that any thread may call
  Negotiation negotiation_;       // the same; the rest of both is guarded by progress_mutex_
  bool in_grace_period_ = false;  // guarded by progress_mutex_; the thread progresses at its end
  bool ended_ = false;            // guarded by progress_mutex_; no thread makes progress any more
  std::vector<pollfd> watched_;   // guarded by progress_mutex_; the thread's poll set in its sleep

  WakeSignal wake_;  // notified by any thread; the rest is for the holder of progress_mutex_
  std::atomic<Negotiation::Interest> interest_{Negotiation::Interest::kNone};
  std::atomic<uint64_t> caller_progress_ns_{0};  // the last time that a caller made progress

  std::thread thread_;  // the owner's
};

}  // namespace hvdtune
