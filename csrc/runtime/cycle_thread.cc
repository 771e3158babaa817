#include "runtime/cycle_thread.h"

#include <poll.h>

#include <algorithm>
#include <cfenv>
#include <limits>
#include <utility>

#include "negotiate/fusion.h"
#include "transport/socket.h"

namespace hvdtune {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

pollfd poll_entry(const FramedChannel& channel) {
  const short events = channel.has_unsent() ? POLLIN | POLLOUT : POLLIN;
  return {channel.fd(), events, 0};
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text.append(text.empty() ? "" : ", ").append(std::to_string(rank));
  return text;
}

}  // namespace

CycleThread::CycleThread(Mesh& mesh, const CycleOptions& options, OperationTable& table,
                         Health& health, StopSignal& stop, Recorder& recorder, Recorder::Lane& lane)
    : rank_(mesh.topology.rank),
      size_(mesh.topology.size),
      options_(options),
      table_(table),
      health_(health),
      stop_(stop),
      recorder_(recorder),
      lane_(lane),
      negotiator_(size_, static_cast<size_t>(options.setting.cache_capacity)),
      executor_(mesh, stop, table, cache_, recorder, lane),
      board_(options.setting, size_),
      ledger_(size_),
      shown_setting_(options.setting) {
  for (std::optional<Channel>& channel : mesh.control) {
    control_.push_back(channel ? std::make_unique<FramedChannel>(std::move(*channel), rank_)
                               : nullptr);
  }
  if (mesh.job && is_coordinator()) {
    job_ = std::make_unique<FramedChannel>(std::move(*mesh.job), rank_);
    mesh.job.reset();
  }
  thread_ = std::thread(&CycleThread::run, this);
}

CycleThread::~CycleThread() { leave(); }

void CycleThread::work_added() {
  if (interest_.load() == Interest::kNewWork) wake_.notify();
}

void CycleThread::caller_waits() {
  if (interest_.load() != Interest::kNone) wake_.notify();
}

void CycleThread::mark_step() {
  const uint64_t now = now_ns();
  const std::lock_guard lock(mutex_);
  if (last_mark_ns_ != 0) marks_.push_back({next_step_++, last_mark_ns_, now});
  last_mark_ns_ = now;
}

uint32_t CycleThread::propose(const Setting& setting) {
  if (!is_coordinator()) {
    throw Error(ErrorCode::kUsage,
                "only rank 0 can propose a setting; this is rank " + std::to_string(rank_));
  }
  uint32_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    version = next_version_++;
    proposals_.push_back({version, setting});
  }
  wake_.notify();
  return version;
}

Setting CycleThread::setting() const {
  const std::lock_guard lock(mutex_);
  return shown_setting_;
}

uint32_t CycleThread::version() const {
  const std::lock_guard lock(mutex_);
  return shown_version_;
}

CycleCounts CycleThread::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void CycleThread::leave() {
  leaving_.store(true);
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void CycleThread::run() {
  // A thread inherits rounding and the flushing of subnormals; sums must not depend on the caller.
  std::fesetenv(FE_DFL_ENV);
  try {
    while (!leaving_.load()) {
      if (stop_.raised()) throw Error(ErrorCode::kShutdown, "stopped");
      turn();
    }
    farewell();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
}

void CycleThread::fail(const Error& error) {
  Error cause = error;
  if (error.code() == ErrorCode::kRankLost) {
    cause = health_.settle_loss(error);
  } else if (error.code() == ErrorCode::kShutdown && health_.loss()) {
    cause = *health_.loss();
  } else {
    health_.tell_failure(error.what());
  }
  stop_.raise();
  table_.close(cause);
  tell_job(FrameKind::kLost, encode(Notice{cause.rank(), cause.what()}));
}

void CycleThread::turn() {
  announce_local();
  receive();
  if (is_coordinator()) {
    take_proposals();
    emit();
    warn_of_stalls(now_ns());
  }
  sleep();
}

void CycleThread::announce_local() {
  if (!departed_.empty()) return;  // nothing can complete any more
  for (auto& operation : table_.take_new()) {
    unannounced_bytes_ += bytes_of(operation->request);
    unannounced_.push_back(std::move(operation));
  }
  const bool waits = rank_waits();
  const bool news = !unannounced_.empty();
  // A rank that has just begun to wait says so, once: the coordinator need not collect any longer.
  const bool hint = waits && !announced_waiting_ && in_flight_ > 0;
  if (!news && !hint) return;
  const uint64_t now = now_ns();
  const Setting& setting = board_.setting();
  if (!hint && due_ns({last_announce_ns_, unannounced_bytes_, waits}, now, setting.cycle_time_ms,
                      setting.fusion_threshold_bytes) > now) {
    return;
  }
  submit(compose(now));
}

Announce CycleThread::compose(uint64_t now) {
  Announce announce;
  announce.adopted_version = board_.version();
  announce.cycles_seen = cycles_applied_;
  announce.waiting = rank_waits();
  const bool use_cache = board_.setting().cache_enabled;
  for (const auto& operation : unannounced_) {
    const auto id = use_cache ? cache_.find(operation->request) : std::nullopt;
    operation->was_cached = id.has_value();
    if (id) {
      announce.cached.push_back(*id);
    } else {
      announce.requests.push_back(operation->request);
    }
  }
  in_flight_ += unannounced_.size();
  unannounced_.clear();
  unannounced_bytes_ = 0;
  announced_waiting_ = announce.waiting;
  last_announce_ns_ = now;
  take_marks(announce);
  const std::lock_guard lock(mutex_);
  counts_.cached_announcements += announce.cached.size();
  counts_.full_announcements += announce.requests.size();
  return announce;
}

void CycleThread::take_marks(Announce& announce) {
  std::vector<Marked> marks;
  {
    const std::lock_guard lock(mutex_);
    marks.swap(marks_);
  }
  for (const Marked& mark : marks) {
    lane_.record(EventKind::kStep, mark.begin_ns, mark.end_ns, 0, static_cast<uint32_t>(mark.step),
                 0, 0);
    announce.steps.push_back({mark.step, mark.end_ns - mark.begin_ns});
    if (is_coordinator()) {
      ledger_.note_own(mark.step, board_.version_between(mark.begin_ns, mark.end_ns), mark.end_ns);
    }
  }
}

void CycleThread::submit(const Announce& announce) {
  if (is_coordinator()) return take_announce(0, announce);
  // Never waits for rank 0, which may be waiting for this rank to take a long cycle.
  control_[0]->queue(FrameKind::kAnnounce, encode(announce));
}

void CycleThread::receive() {
  for (const auto& channel : control_) {
    if (!channel) continue;
    const int peer = channel->peer();
    channel->flush();
    while (!has_departed(peer)) {
      const std::optional<Frame> frame = channel->receive();
      if (!frame) break;
      if (is_coordinator() && frame->kind == FrameKind::kAnnounce) {
        take_announce(peer, decode_announce(frame->payload));
      } else if (!is_coordinator() && frame->kind == FrameKind::kCycle) {
        apply(decode_cycle(frame->payload));
      } else {
        throw Error(ErrorCode::kInternal,
                    "rank " + std::to_string(peer) + " sent a message of the wrong kind", peer);
      }
    }
  }
}

void CycleThread::take_announce(int rank, const Announce& announce) {
  if (board_.acknowledge(rank, announce.adopted_version)) {
    tell_job(FrameKind::kAdopted,
             encode(Notice{static_cast<int32_t>(announce.adopted_version), ""}));
  }
  for (const StepMark& mark : announce.steps) {
    if (const auto report = ledger_.add(rank, mark)) report_step(*report);
  }
  if (announce.leaving) return depart(rank);
  negotiator_.announce(rank, announce, now_ns());
}

void CycleThread::report_step(const StepReport& report) {
  tell_job(FrameKind::kStep, encode(report));
}

void CycleThread::tell_job(FrameKind kind, Bytes payload) {
  if (job_) job_->queue(kind, payload);
}

void CycleThread::take_proposals() {
  if (job_) {
    try {
      job_->flush();
      while (const auto frame = job_->receive()) {
        if (frame->kind == FrameKind::kPropose) board_.stage(decode_proposal(frame->payload));
      }
    } catch (const Error& error) {
      // Training outlives the tuner: the setting in force stays.
      log(LogLevel::kWarning, options_.log_level, rank_,
          std::string("the launcher is gone; training goes on: ") + error.what());
      job_.reset();
    }
  }
  const std::lock_guard lock(mutex_);
  for (const Proposal& proposal : proposals_) board_.stage(proposal);
  proposals_.clear();
}

void CycleThread::emit() {
  if (!can_emit()) return;
  const uint64_t now = now_ns();
  const Setting& setting = board_.setting();
  const Batch batch{last_emit_ns_, negotiator_.ready_bytes(), negotiator_.everybody_waits()};
  if (due_ns(batch, now, setting.cycle_time_ms, setting.fusion_threshold_bytes) > now) return;
  Cycle cycle = compose_cycle(now);
  const std::vector<uint8_t> bytes = encode(cycle);
  for (const auto& channel : control_) {
    if (channel) channel->send(FrameKind::kCycle, bytes, Deadline::never(), stop_);
  }
  apply(std::move(cycle));
}

Cycle CycleThread::compose_cycle(uint64_t now) {
  last_emit_ns_ = now;
  Cycle cycle;
  cycle.number = cycles_applied_ + 1;
  cycle.setting_version = board_.version();
  Setting setting = board_.setting();
  if (const auto proposal = board_.take_staged()) {
    setting = proposal->setting;
    // Fixed by the memory every rank holds since init.
    setting.cache_capacity = board_.setting().cache_capacity;
    cycle.setting = setting;
    cycle.setting_version = proposal->version;
  }
  Ready ready = negotiator_.take_ready(setting.cache_enabled, cycle.number);
  cycle.evicted = std::move(ready.evicted);
  FusionPlan plan = plan_fusion(std::move(ready.responses), setting.fusion_threshold_bytes);
  cycle.responses = std::move(plan.responses);
  cycle.buckets = std::move(plan.buckets);
  return cycle;
}

void CycleThread::apply(Cycle cycle) {
  const uint64_t now = now_ns();
  cycles_applied_ = cycle.number;
  if (cycle.setting) {
    board_.adopt(cycle.setting_version, *cycle.setting, now);
    lane_.record(EventKind::kKnobAdopted, now, now, recorder_.intern(to_json(*cycle.setting)), 0, 0,
                 cycle.setting_version);
  }
  for (Response& response : cycle.responses) {
    if (response.compact) cache_.complete(response);
  }
  {
    // Before the first operation completes: its caller sees what it was part of.
    const std::lock_guard lock(mutex_);
    ++counts_.cycles;
    counts_.tensors += cycle.responses.size();
    counts_.buckets += cycle.buckets.size();
    shown_setting_ = board_.setting();
    shown_version_ = board_.version();
  }
  executor_.execute(cycle, board_.setting(), now);
  in_flight_ -= std::min(in_flight_, cycle.responses.size());
  for (const int32_t rank : cycle.departed) depart(rank);
}

bool CycleThread::has_departed(int rank) const {
  return std::find(departed_.begin(), departed_.end(), rank) != departed_.end();
}

void CycleThread::depart(int rank) {
  if (is_coordinator()) {
    tell_job(FrameKind::kLeft, encode(Notice{rank, ""}));
    Cycle cycle;
    cycle.number = cycles_applied_;
    cycle.setting_version = board_.version();
    cycle.departed = {rank};
    const std::vector<uint8_t> bytes = encode(cycle);
    for (const auto& channel : control_) {
      if (!channel || has_departed(channel->peer())) continue;
      channel->send(FrameKind::kCycle, bytes, Deadline::never(), stop_);
    }
  }
  departed_.push_back(rank);
  if (leaving_.load()) {
    return table_.close(Error(ErrorCode::kShutdown, "hvdtune was shut down", rank_));
  }
  table_.close(Error(
      ErrorCode::kRankLost,
      "rank " + std::to_string(rank) + " has shut down, so no collective can complete any more",
      rank));
}

// The others may already wait for data that this rank has announced, so it goes on executing until
// rank 0 has taken note; after that nothing is emitted.
void CycleThread::farewell() {
  unannounced_.clear();
  Announce announce = compose(now_ns());
  announce.leaving = true;
  if (is_coordinator()) return take_announce(0, announce);
  FramedChannel& coordinator = *control_[0];
  if (!has_departed(0)) coordinator.queue(FrameKind::kAnnounce, encode(announce));
  while (!has_departed(0) && !has_departed(rank_)) {
    const short events = coordinator.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    wait_ready(coordinator.fd(), events, Deadline::never(), stop_, "leave");
    receive();
  }
}

void CycleThread::warn_of_stalls(uint64_t now) {
  const auto period = static_cast<uint64_t>(options_.stall_warning.count());
  if (now < next_stall_check_ns_) return;
  if (next_stall_check_ns_ != 0) {
    for (const Stalled& stalled : negotiator_.stalled(now - period)) {
      log(LogLevel::kWarning, options_.log_level, rank_,
          "tensor \"" + stalled.name + "\" waits for rank " + list_of(stalled.missing_ranks) +
              " for more than " + std::to_string(period / 1'000'000'000) +
              " s; the ranks may call collectives in different order, or one is very slow");
    }
  }
  next_stall_check_ns_ = now + period;
}

uint64_t CycleThread::wake_time(Interest& interest) {
  if (!departed_.empty()) return kNever;
  uint64_t until = negotiator_.has_pending() ? next_stall_check_ns_ : kNever;
  const uint64_t now = now_ns();
  const Setting& setting = board_.setting();
  interest = Interest::kNewWork;
  if (!unannounced_.empty()) {
    // The window collects: only its end, or a caller that waits, is worth waking for.
    interest = Interest::kWaiting;
    until = std::min(until, due_ns({last_announce_ns_, unannounced_bytes_, false}, now,
                                   setting.cycle_time_ms, setting.fusion_threshold_bytes));
  }
  if (can_emit()) {
    const Batch batch{last_emit_ns_, negotiator_.ready_bytes(), negotiator_.everybody_waits()};
    until =
        std::min(until, due_ns(batch, now, setting.cycle_time_ms, setting.fusion_threshold_bytes));
  }
  return until;
}

void CycleThread::sleep() {
  Interest interest = Interest::kNone;
  const uint64_t until = wake_time(interest);
  interest_.store(interest);
  // Whoever acted before that store may have seen no interest; whoever acts after will notify.
  const bool wait_is_news = !unannounced_.empty() || (in_flight_ > 0 && !announced_waiting_);
  const bool missed = leaving_.load() || (interest == Interest::kNewWork && table_.has_new()) ||
                      (interest != Interest::kNone && wait_is_news && rank_waits());
  if (!missed) {
    std::vector<pollfd> fds = {{wake_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
    for (const auto& channel : control_) {
      if (channel && !has_departed(channel->peer())) fds.push_back(poll_entry(*channel));
    }
    if (job_) fds.push_back(poll_entry(*job_));
    timespec limit{};
    const uint64_t now = now_ns();
    if (until != kNever && until > now) {
      limit.tv_sec = static_cast<time_t>((until - now) / 1'000'000'000);
      limit.tv_nsec = static_cast<long>((until - now) % 1'000'000'000);
    }
    ppoll(fds.data(), fds.size(), until == kNever ? nullptr : &limit, nullptr);
  }
  interest_.store(Interest::kNone);
  wake_.drain();
}

}  // namespace hvdtune
