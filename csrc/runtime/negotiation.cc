#include "runtime/negotiation.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "negotiate/fusion.h"
#include "runtime/gpu/gpu_thread.h"

namespace hvdtune {
namespace {

std::vector<std::vector<int>> with_self(int rank, const std::vector<std::vector<int>>& branches) {
  std::vector<std::vector<int>> list = {{rank}};
  list.insert(list.end(), branches.begin(), branches.end());
  return list;
}

}  // namespace

Negotiation::Negotiation(const Services& services, LauncherLink& launcher, Steering& steering,
                         BackendSource* backends, AfterJoin after_join)
    : rank_(services.mesh.topology.rank),
      table_(services.table),
      gpu_(services.gpu),
      stop_(services.stop),
      launcher_(launcher),
      steering_(steering),
      tree_(services.mesh),
      sets_(services.mesh.topology.size),
      executor_(services, backends, cache_, sets_,
                [this](const Response& response) { change(response); }),
      shown_sets_(std::make_shared<const ProcessSets>(sets_)) {
  const std::vector<std::vector<int>> branches = with_self(rank_, services.mesh.branches);
  if (is_root()) {
    negotiator_.emplace(sets_, branches, static_cast<size_t>(board().setting().cache_capacity),
                        kNoCacheId, after_join);
  } else {
    pending_requests_.emplace(sets_, branches,
                              [this](uint32_t id) { return cache_.request_of(id); });
  }
}

CycleCounts Negotiation::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<const ProcessSets> Negotiation::process_sets() const {
  const std::lock_guard lock(mutex_);
  return shown_sets_;
}

void Negotiation::step() {
  receive();
  announce();
  if (is_root()) {
    steering_.receive_orders();
    emit();
  }
}

void Negotiation::receive() {
  tree_.receive([this](size_t branch, const Frame& frame) {
    FAILPOINT("cycle/received");
    if (branch > 0) return take_announce(branch, decode_announce(frame.payload));
    FAILPOINT("cycle/relay");
    tree_.send_down(frame.payload, stop_);
    FAILPOINT("cycle/relayed");
    apply(decode_cycle(frame.payload));
  });
}

void Negotiation::announce() {
  if (!left_ranks_.empty()) return;  // nothing can complete any more
  // Read first: the operations that a caller waits for are then among the new ones.
  const bool waits = rank_waits();
  for (auto& operation : table_.take_new()) {
    unannounced_bytes_ += bytes_of(*operation->request);
    unannounced_.push_back(std::move(operation));
  }
  pending_requests().note_self(waits, cycles_applied_, board().version());
  if (steering_.has_holds()) send_up({}, {});
  const bool everybody = is_root() ? waits : pending_requests().everybody_waits();
  // Sent once, when ranks begin to wait: the root need not collect any longer.
  const bool hint = everybody && !announced_waiting_;
  const uint64_t now = now_ns();
  if (!hint && !is_due(everybody, now)) return;
  submit_own(waits, now);
  announced_waiting_ = everybody;
  if (is_root()) return;
  std::vector<PendingRequest> entries = pending_requests_->take_ready();
  // When everybody waits, incomplete operations stay incomplete here. The root may complete them.
  if (entries.empty() && everybody) entries = pending_requests_->take_partial();
  if (hint || !entries.empty()) send_up(std::move(entries), {});
}

bool Negotiation::is_due(bool everybody, uint64_t now) const {
  const bool passes_on = !is_root() && (pending_requests_->has_ready() ||
                                        (everybody && pending_requests_->has_unforwarded()));
  if (unannounced_.empty() && !passes_on) return false;
  const size_t bytes = unannounced_bytes_ + (is_root() ? 0 : pending_requests_->ready_bytes());
  const Setting& setting = board().setting();
  return due_ns({last_announce_ns_, bytes, everybody}, now, setting.cycle_time_ms,
                setting.fusion_threshold_bytes) <= now;
}

// Announces the new operations of this rank.
void Negotiation::submit_own(bool waits, uint64_t now) {
  FAILPOINT("cycle/submit");
  Announce own;
  own.adopted_version = board().version();
  own.cycles_seen = cycles_applied_;
  own.cycles_applied = cycles_applied_;
  own.waiting = waits;
  const bool use_cache = board().setting().cache_enabled;
  for (const auto& operation : unannounced_) {
    const auto id = use_cache ? cache_.find(*operation->request) : std::nullopt;
    operation->was_cached = id.has_value();
    if (id) {
      own.cached.push_back(*id);
    } else {
      own.requests.push_back({*operation->request, {rank_}});
    }
  }
  unannounced_.clear();
  unannounced_bytes_ = 0;
  last_announce_ns_ = now;
  steering_.take_marks(own);
  take_announce(0, own);
  const std::lock_guard lock(mutex_);
  counts_.cached_announcements += own.cached.size();
  counts_.full_announcements += own.requests.size();
  counts_.traffic = tree_.traffic();
}

void Negotiation::send_up(std::vector<PendingRequest> entries, std::vector<int32_t> leaving) {
  Announce announce;
  put_claims(*pending_requests_, entries, announce);
  announce.leaving = std::move(leaving);
  steering_.put_reports(announce);
  FAILPOINT("cycle/announce");
  tree_.send_up(encode(announce));
  FAILPOINT("cycle/announced");
}

void Negotiation::take_announce(size_t branch, const Announce& announce) {
  steering_.take_reports(branch, announce);
  if (is_root()) {
    negotiator_->announce(branch, announce, now_ns());
    return announce_departures(announce.leaving);
  }
  pending_requests_->add(branch, announce, now_ns());
  cache_.drop_forgotten(pending_requests_->cycles_seen());
  if (!announce.leaving.empty()) send_up(pending_requests_->take_ready(), announce.leaving);
}

OutgoingBatch Negotiation::cycle_batch() const {
  return {last_emit_ns_, negotiator_->ready_bytes(), negotiator_->everybody_waits()};
}

void Negotiation::emit() {
  if (!can_emit()) return;
  const uint64_t now = now_ns();
  const Setting& setting = board().setting();
  if (!steering_.is_urgent() &&
      due_ns(cycle_batch(), now, setting.cycle_time_ms, setting.fusion_threshold_bytes) > now) {
    return;
  }
  Cycle cycle = compose_cycle(now);
  FAILPOINT("cycle/emit");
  tree_.send_down(encode(cycle), stop_);
  FAILPOINT("cycle/emitted");
  apply(std::move(cycle));
}

// Returns the reason to stop collecting.
CutReason Negotiation::reason_to_emit() const {
  const int64_t threshold = board().setting().fusion_threshold_bytes;
  if (negotiator_->everybody_waits()) return CutReason::kAllReady;
  const bool enough = threshold > 0 && negotiator_->ready_bytes() >= static_cast<size_t>(threshold);
  return enough ? CutReason::kEnough : CutReason::kCycleTime;
}

Cycle Negotiation::compose_cycle(uint64_t now) {
  last_emit_ns_ = now;
  const CutReason reason = reason_to_emit();
  Cycle cycle;
  cycle.number = cycles_applied_ + 1;
  steering_.put_orders(cycle);
  const Setting& setting = cycle.setting ? *cycle.setting : board().setting();
  Ready ready = negotiator_->take_ready(setting.cache_enabled, cycle.number);
  cycle.evicted = std::move(ready.evicted);
  FusionPlan plan = plan_fusion(std::move(ready.responses), setting.fusion_threshold_bytes, reason);
  cycle.responses = std::move(plan.responses);
  cycle.buckets = std::move(plan.buckets);
  return cycle;
}

void Negotiation::apply(Cycle cycle) {
  const uint64_t now = now_ns();
  cycles_applied_ = cycle.number;
  announced_waiting_ = false;
  has_served_ = rank_waits();
  steering_.apply(cycle, now);
  for (Response& response : cycle.responses) {
    if (response.compact) cache_.complete(response);
  }
  {
    // Before the first operation completes: its caller then sees the counts with it.
    const std::lock_guard lock(mutex_);
    ++counts_.cycles;
    counts_.tensors += cycle.responses.size();
    counts_.buckets += cycle.buckets.size();
    counts_.traffic = tree_.traffic();
  }
  executor_.execute(cycle, board().setting(), now);
  FAILPOINT("cycle/applied");
  for (const int32_t rank : cycle.departed) on_rank_left(rank);
}

// Applies the changes of a response other than tensors.
void Negotiation::change(const Response& response) {
  const Request& request = response.request;
  if (!response.error.empty()) return pending_requests().drop(key_of(request));
  if (request.op == OpType::kJoin) return pending_requests().end_join(request.process_set);
  // GPUs finish the earlier operations first.
  if (gpu_ != nullptr) gpu_->drain();
  if (request.op == OpType::kAddSet) {
    std::vector<int> ranks(request.splits.begin(), request.splits.end());
    sets_.add(static_cast<uint32_t>(response.first_dims[0]), std::move(ranks));
  } else {
    const auto set = static_cast<uint32_t>(request.splits[0]);
    sets_.remove(set);
    pending_requests().drop_set(set);
    executor_.drop_group(set);
    if (gpu_ != nullptr) gpu_->drop_set(set);
    table_.remove_set(
        set, Error(ErrorCode::kUsage, "process set " + std::to_string(set) + " was removed"));
  }
  const std::lock_guard lock(mutex_);
  shown_sets_ = std::make_shared<const ProcessSets>(sets_);
}

bool Negotiation::has_left(int rank) const {
  return std::find(left_ranks_.begin(), left_ranks_.end(), rank) != left_ranks_.end();
}

// On the root: notifies all ranks. The leaving ranks may exit when they receive the notice.
void Negotiation::announce_departures(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return;
  Cycle cycle;
  cycle.number = cycles_applied_;
  cycle.setting_version = board().version();
  cycle.departed = ranks;
  tree_.send_down(encode(cycle), stop_);
  for (const int32_t rank : ranks) {
    launcher_.send(FrameKind::kLeft, encode(Notice{rank, ""}));
    on_rank_left(rank);
  }
}

void Negotiation::on_rank_left(int rank) {
  FAILPOINT("cycle/on_rank_left");
  left_ranks_.push_back(rank);
  steering_.abandon();
  tree_.on_rank_left(rank);
  // All ranks have enqueued the same operations, so they all complete.
  if (gpu_ != nullptr) gpu_->drain();
  if (is_leaving()) {
    return table_.close(Error(ErrorCode::kShutdown, "hvdtune was shut down", rank_));
  }
  table_.close(Error(
      ErrorCode::kRankLost,
      "rank " + std::to_string(rank) +
          " has shut down, so no collective can complete any more. Its script made fewer calls: it "
          "had fewer batches, or this rank makes a call that the others do not. Call hvd.join() on "
          "a rank that runs out of batches (with DDP, train in `with model.join():`).",
      rank));
}

void Negotiation::leave() {
  FAILPOINT("cycle/shutdown_handshake");
  unannounced_.clear();
  submit_own(false, now_ns());
  if (is_root()) return announce_departures({rank_});
  if (!has_left(0)) send_up({}, {rank_});
  while (!has_left(0) && !has_left(rank_) && !tree_.is_cut_off()) {
    std::vector<pollfd> fds = {{stop_.fd(), POLLIN, 0}};
    tree_.add_to(fds);
    poll(fds.data(), fds.size(), -1);
    if (stop_.raised()) throw Error(ErrorCode::kShutdown, "stopped while leaving");
    receive();
  }
}

Negotiation::Wake Negotiation::next_wake() const {
  Wake wake{kNever, Interest::kNone};
  if (!left_ranks_.empty()) return wake;
  const uint64_t now = now_ns();
  const Setting& setting = board().setting();
  wake.interest = Interest::kNewWork;
  if (!unannounced_.empty() || (!is_root() && pending_requests_->has_ready())) {
    // The window collects: wake up at its end or for a caller that waits.
    wake.interest = Interest::kWaiting;
    const size_t bytes = unannounced_bytes_ + (is_root() ? 0 : pending_requests_->ready_bytes());
    wake.at_ns = due_ns({last_announce_ns_, bytes, false}, now, setting.cycle_time_ms,
                        setting.fusion_threshold_bytes);
  }
  if (can_emit()) {
    if (steering_.is_urgent()) wake.at_ns = now;
    wake.at_ns = std::min(wake.at_ns, due_ns(cycle_batch(), now, setting.cycle_time_ms,
                                             setting.fusion_threshold_bytes));
  }
  return wake;
}

bool Negotiation::wait_is_news() {
  if (!rank_waits()) return false;
  if (is_root()) return !announced_waiting_ || !unannounced_.empty();
  pending_requests_->note_self(true, cycles_applied_, board().version());
  return pending_requests_->everybody_waits() &&
         (!announced_waiting_ || !unannounced_.empty() || pending_requests_->has_ready());
}

}  // namespace hvdtune
