// The thread that negotiates and communicates: the only one that touches links, the arena, the
// cache and the negotiator.
//
// A turn: announce what is new on this rank; rank 0 also takes the others' announcements and, when
// the batch is due, sends a cycle to all; everyone executes cycles in order; then sleep until a
// message, new work or the end of a window. An idle thread sleeps in poll(2) without a timeout.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.h"
#include "negotiate/negotiator.h"
#include "negotiate/response_cache.h"
#include "negotiate/window.h"
#include "runtime/executor.h"
#include "runtime/framed_channel.h"
#include "runtime/health.h"
#include "runtime/knob_board.h"
#include "runtime/operation.h"
#include "runtime/step_ledger.h"

namespace hvdtune {

struct CycleOptions {
  Setting setting;
  std::chrono::nanoseconds stall_warning = std::chrono::seconds(60);
  LogLevel log_level = LogLevel::kWarning;
};

// Counters since start; plain numbers for a person or a test.
struct CycleCounts {
  uint64_t cycles = 0;
  uint64_t tensors = 0;
  uint64_t buckets = 0;
  uint64_t cached_announcements = 0;
  uint64_t full_announcements = 0;
};

// Thread rule: public members may be called from any thread.
class CycleThread {
 public:
  CycleThread(Mesh& mesh, const CycleOptions& options, OperationTable& table, Health& health,
              StopSignal& stop, Recorder& recorder, Recorder::Lane& lane);
  ~CycleThread();

  // New operations are in the table.
  void work_added();
  // A caller waits for an operation: collecting more would only delay it.
  void caller_waits();
  void mark_step();
  // Rank 0 only. Returns the version under which it will be adopted.
  uint32_t propose(const Setting& setting);
  Setting setting() const;
  uint32_t version() const;
  CycleCounts counts() const;

  // Tells the other ranks that this one leaves, and ends the thread.
  void leave();

 private:
  struct Marked {
    uint64_t step;
    uint64_t begin_ns;
    uint64_t end_ns;
  };
  enum class Interest : int { kNone, kNewWork, kWaiting };

  void run();
  void turn();
  void fail(const Error& error);
  void announce_local();
  Announce compose(uint64_t now);
  void take_marks(Announce& announce);
  void submit(const Announce& announce);
  void receive();
  void take_announce(int rank, const Announce& announce);
  void take_proposals();
  void emit();
  Cycle compose_cycle(uint64_t now);
  void apply(Cycle cycle);
  void depart(int rank);
  void farewell();
  bool has_departed(int rank) const;
  bool can_emit() const { return departed_.empty() && negotiator_.has_ready(); }
  void report_step(const StepReport& report);
  void tell_job(FrameKind kind, Bytes payload);
  void warn_of_stalls(uint64_t now);
  void sleep();
  uint64_t wake_time(Interest& interest);
  bool is_coordinator() const { return rank_ == 0; }
  bool rank_waits() const { return table_.waiting_threads() > 0; }

  const int rank_;
  const int size_;
  const CycleOptions options_;
  OperationTable& table_;
  Health& health_;
  StopSignal& stop_;
  Recorder& recorder_;
  Recorder::Lane& lane_;

  // The cycle thread's own.
  std::vector<std::unique_ptr<FramedChannel>> control_;  // rank 0: by rank; others: only [0]
  std::unique_ptr<FramedChannel> job_;                   // rank 0's, to the launcher
  Negotiator negotiator_;
  ResponseCache cache_;
  Executor executor_;
  KnobBoard board_;
  StepLedger ledger_;
  std::vector<std::shared_ptr<Operation>> unannounced_;
  size_t unannounced_bytes_ = 0;
  size_t in_flight_ = 0;  // announced, not yet executed
  bool announced_waiting_ = false;
  uint64_t last_announce_ns_ = 0;
  uint64_t last_emit_ns_ = 0;
  uint64_t cycles_applied_ = 0;
  uint64_t next_stall_check_ns_ = 0;
  std::vector<int32_t> departed_;

  // Shared.
  WakeSignal wake_;
  std::atomic<Interest> interest_{Interest::kNone};
  std::atomic<bool> leaving_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::vector<Marked> marks_;
  uint64_t next_step_ = 0;
  uint64_t last_mark_ns_ = 0;
  std::vector<Proposal> proposals_;
  uint32_t next_version_ = 1;
  Setting shown_setting_;
  uint32_t shown_version_ = 0;
  CycleCounts counts_;

  std::thread thread_;
};

}  // namespace hvdtune
