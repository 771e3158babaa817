// The part of a rank in the negotiation: announces operations, and carries out the answers.
//
// A step of progress takes the announcements of the children in the negotiation tree, adds the new
// operations of this rank, and sends the operations that are now complete from here down to the
// parent. The root answers with a cycle. Every rank passes a cycle on to its children and carries
// it out.
#pragma once

#include <poll.h>

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "negotiate/negotiator.h"
#include "negotiate/process_sets.h"
#include "negotiate/response_cache.h"
#include "negotiate/window.h"
#include "runtime/executor.h"
#include "runtime/operation.h"
#include "runtime/services.h"
#include "runtime/steering/launcher_link.h"
#include "runtime/steering/steering.h"
#include "runtime/tree_channels.h"

namespace hvdtune {

// Counters since start.
struct CycleCounts {
  uint64_t cycles = 0;
  uint64_t tensors = 0;
  uint64_t buckets = 0;
  uint64_t cached_announcements = 0;
  uint64_t full_announcements = 0;
  ControlTraffic traffic;
};

class Negotiation {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  // The events that must wake a sleeping rank.
  enum class Interest : int { kNone, kNewWork, kWaiting };
  struct Wake {
    uint64_t at_ns;
    Interest interest;
  };

  // Takes the mesh's connections to the parent and the children. `backends` may be null; it,
  // `launcher` and `steering` outlive this object.
  Negotiation(const Services& services, LauncherLink& launcher, Steering& steering,
              BackendSource* backends, AfterJoin after_join);

  // These may be called from any thread.
  CycleCounts counts() const;
  // The sets after the last cycle that this rank has carried out. Never null.
  std::shared_ptr<const ProcessSets> process_sets() const;
  // From now on, a rank that leaves ends the pending operations without naming that rank.
  void begin_leaving() { leaving_.store(true); }
  bool is_leaving() const { return leaving_.load(); }

  // The rest is for the holder of the progress lock.

  // Does everything that can be done now.
  void step();
  // The events and the time at which step() is worth calling again.
  Wake next_wake() const;
  // True if the parent should learn now that callers wait.
  bool wait_is_news();
  // True once after a cycle that completed operations while callers waited.
  bool take_served() { return std::exchange(has_served_, false); }
  void add_to(std::vector<pollfd>& polls) const { tree_.add_to(polls); }
  // Leaves the job. Other ranks may still wait for announced data, so this rank continues to
  // execute until rank 0 has acknowledged.
  void leave();
  // REQUIRES: no thread makes progress any more.
  size_t undelivered_bytes() { return tree_.undelivered_bytes(); }

 private:
  void receive();
  void announce();
  bool is_due(bool everybody, uint64_t now) const;
  void submit_own(bool waits, uint64_t now);
  void send_up(std::vector<PendingRequest> entries, std::vector<int32_t> leaving);
  void take_announce(size_t branch, const Announce& announce);
  void emit();
  bool can_emit() const {
    return is_root() && left_ranks_.empty() && (negotiator_->has_ready() || steering_.is_urgent());
  }
  OutgoingBatch cycle_batch() const;
  CutReason reason_to_emit() const;
  Cycle compose_cycle(uint64_t now);
  void apply(Cycle cycle);
  void change(const Response& response);
  bool has_left(int rank) const;
  void announce_departures(const std::vector<int32_t>& ranks);
  void on_rank_left(int rank);
  bool is_root() const { return rank_ == 0; }
  bool rank_waits() const { return table_.waiting_threads() > 0; }
  const KnobBoard& board() const { return steering_.board(); }
  PendingRequests& pending_requests() {
    return is_root() ? negotiator_->pending_requests() : *pending_requests_;
  }

  const int rank_;
  OperationTable& table_;  // has a lock of its own
  GpuThread* const gpu_;   // has a lock of its own
  StopSignal& stop_;       // any thread may raise it

  // Guarded by the progress lock.
  LauncherLink& launcher_;
  Steering& steering_;
  TreeChannels tree_;
  ProcessSets sets_;
  ResponseCache cache_;
  std::optional<Negotiator> negotiator_;             // the root's
  std::optional<PendingRequests> pending_requests_;  // the other ranks'
  Executor executor_;
  std::vector<std::shared_ptr<Operation>> unannounced_;
  size_t unannounced_bytes_ = 0;
  bool announced_waiting_ = false;
  uint64_t last_announce_ns_ = 0;
  uint64_t last_emit_ns_ = 0;
  uint64_t cycles_applied_ = 0;
  std::vector<int32_t> left_ranks_;
  bool has_served_ = false;  // callers waited for operations that have just completed

  std::atomic<bool> leaving_{false};
  mutable std::mutex mutex_;  // guards the rest
  CycleCounts counts_;
  std::shared_ptr<const ProcessSets> shown_sets_;
};

}  // namespace hvdtune
