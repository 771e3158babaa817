#include "runtime/cycle_thread.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/failpoint.h"
#include "negotiate/fusion.h"
#include "runtime/gpu/gpu_thread.h"
#include "transport/backoff.h"

namespace hvdtune {
namespace {

std::vector<std::vector<int>> with_self(int rank, const std::vector<std::vector<int>>& branches) {
  std::vector<std::vector<int>> list = {{rank}};
  list.insert(list.end(), branches.begin(), branches.end());
  return list;
}

}  // namespace

CycleThread::CycleThread(const Services& services, const CycleOptions& options)
    : rank_(services.mesh.topology.rank),
      size_(services.mesh.topology.size),
      options_(options),
      mesh_(services.mesh),
      table_(services.table),
      health_(services.health),
      gpu_(services.gpu),
      stop_(services.stop),
      recorder_(services.recorder),
      events_(services.events),
      may_spin_(spins_for(services.mesh) > 0),
      spin_ns_(caller_spin_ns(services.mesh.costs)),
      // A library under the collectives may want them all from one thread.
      callers_may_progress_(may_spin_ && options.backends == nullptr && services.gpu == nullptr),
      tree_(services.mesh),
      sets_(size_),
      executor_(services, options.backends, cache_, sets_,
                [this](const Response& response) { change(response); }),
      board_(options.setting, static_cast<int>(tree_.branches())),
      step_collector_(size_),
      shown_setting_(options.setting),
      shown_sets_(std::make_shared<const ProcessSets>(sets_)),
      step_switch_(options.setting.script) {
  Mesh& mesh = services.mesh;
  const std::vector<std::vector<int>> branches = with_self(rank_, mesh.branches);
  if (is_root()) {
    negotiator_.emplace(sets_, branches, static_cast<size_t>(options.setting.cache_capacity),
                        kNoCacheId, options.after_join);
  } else {
    pending_requests_.emplace(sets_, branches,
                              [this](uint32_t id) { return cache_.request_of(id); });
  }
  if (mesh.job && is_root()) {
    job_ = std::make_unique<FramedChannel>(std::move(*mesh.job), rank_);
    mesh.job.reset();
  }
  thread_ = std::thread(&CycleThread::run, this);
}

CycleThread::~CycleThread() { shut_down(); }

void CycleThread::mark_step(CpuTime use) {
  const uint32_t script_version = step_switch_.version();
  {
    const uint64_t now = now_ns();
    const std::lock_guard lock(mutex_);
    if (last_mark_ns_ != 0) {
      // A step that recording began or ended in is no whole one.
      const bool sampled = step_sampled_ && recorder_.enabled();
      marks_.push_back({next_step_++, last_mark_ns_, now, sampled, use, script_version});
    }
    last_mark_ns_ = now;
    recorder_.begin_step(next_step_);
    step_sampled_ = recorder_.enabled();
  }
  step_switch_.pass();
}

void CycleThread::declare(const std::string& knobs) {
  {
    const std::lock_guard lock(mutex_);
    declarations_.push_back(knobs);
  }
  wake_.notify();
}

uint32_t CycleThread::propose(const Setting& setting) {
  if (!is_root()) {
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

std::shared_ptr<const ProcessSets> CycleThread::process_sets() const {
  const std::lock_guard lock(mutex_);
  return shown_sets_;
}

// The GPU's thread stops this one where it waits: its failure is then the cause.
Error CycleThread::behind(const Error& error) const {
  if (gpu_ == nullptr || error.code() != ErrorCode::kShutdown || health_.loss()) return error;
  return gpu_->failure().value_or(error);
}

void CycleThread::fail(const Error& seen) {
  const Error error = behind(seen);
  Error cause = error;
  if (error.code() == ErrorCode::kRankLost || error.code() == ErrorCode::kTimeout) {
    cause = health_.resolve_loss(error);
  } else if (error.code() == ErrorCode::kShutdown && health_.loss()) {
    cause = *health_.loss();
  } else {
    // The others read the same, as the loss of this rank.
    cause = Error(error.code(), "rank " + std::to_string(rank_) + " failed: " + error.what(),
                  error.rank() < 0 ? rank_ : error.rank(), error.tensor());
    health_.report_failure(cause.what());
  }
  ended_ = true;
  stop_.raise();
  step_switch_.abandon();
  take_back_memory(cause.rank() == rank_ ? -1 : cause.rank());
  if (gpu_ != nullptr) gpu_->abandon();
  table_.close(cause);
  wake_.notify();
  send_to_launcher(FrameKind::kLost, encode(Notice{cause.rank(), cause.what()}));
}

// Whoever is told of the failure uses the operations' memory again at once.
void CycleThread::take_back_memory(int lost) {
  if (!mesh_.arena) return;
  const auto warn = [this](const std::string& text) {
    log(LogLevel::kWarning, options_.log_level, rank_, text);
  };
  const std::string still_writes = mesh_.arena->abandon(lost, health_.timeout(), warn);
  if (!still_writes.empty()) {
    end_while_written_to(rank_, still_writes + " was given up and could not be ended");
  }
}

void CycleThread::make_progress() {
  FAILPOINT("cycle/make_progress");
  if (stop_.raised()) throw Error(ErrorCode::kShutdown, "stopped");
  receive();
  announce();
  if (is_root()) {
    receive_orders();
    emit();
  }
}

void CycleThread::announce() {
  if (!left_ranks_.empty()) return;  // nothing can complete any more
  // Asked first: what a caller waits for is then among what it has submitted.
  const bool waits = rank_waits();
  for (auto& operation : table_.take_new()) {
    unannounced_bytes_ += bytes_of(*operation->request);
    unannounced_.push_back(std::move(operation));
  }
  pending_requests().note_self(waits, cycles_applied_, board_.version());
  if (!holds_.empty()) send_up({}, {});  // scripts may wait for the answer
  const bool everybody = is_root() ? waits : pending_requests().everybody_waits();
  // Ranks that have just begun to wait say so, once: the root need not collect any longer.
  const bool hint = everybody && !announced_waiting_;
  const uint64_t now = now_ns();
  if (!hint && !is_due(everybody, now)) return;
  submit_own(waits, now);
  announced_waiting_ = everybody;
  if (is_root()) return;
  std::vector<PendingRequest> entries = pending_requests_->take_ready();
  // What is not complete here will not be soon when everybody waits: the root may see more in it.
  if (entries.empty() && everybody) entries = pending_requests_->take_partial();
  if (hint || !entries.empty()) send_up(std::move(entries), {});
}

bool CycleThread::is_due(bool everybody, uint64_t now) const {
  const bool passes_on = !is_root() && (pending_requests_->has_ready() ||
                                        (everybody && pending_requests_->has_unforwarded()));
  if (unannounced_.empty() && !passes_on) return false;
  const size_t bytes = unannounced_bytes_ + (is_root() ? 0 : pending_requests_->ready_bytes());
  const Setting& setting = board_.setting();
  return due_ns({last_announce_ns_, bytes, everybody}, now, setting.cycle_time_ms,
                setting.fusion_threshold_bytes) <= now;
}

// Counts what is new on this rank as announced.
void CycleThread::submit_own(bool waits, uint64_t now) {
  FAILPOINT("cycle/submit");
  Announce own;
  own.adopted_version = board_.version();
  own.cycles_seen = cycles_applied_;
  own.cycles_applied = cycles_applied_;
  own.waiting = waits;
  const bool use_cache = board_.setting().cache_enabled;
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
  take_marks(own);
  take_announce(0, own);
  const std::lock_guard lock(mutex_);
  counts_.cached_announcements += own.cached.size();
  counts_.full_announcements += own.requests.size();
  counts_.traffic = tree_.traffic();
}

void CycleThread::send_up(std::vector<PendingRequest> entries, std::vector<int32_t> leaving) {
  Announce announce;
  put_claims(*pending_requests_, entries, announce);
  announce.leaving = std::move(leaving);
  announce.steps = std::exchange(steps_, {});
  announce.holds = std::exchange(holds_, {});
  FAILPOINT("cycle/announce");
  tree_.send_up(encode(announce));
  FAILPOINT("cycle/announced");
}

// Records the steps that ended on this rank, and puts them into its own announcement.
void CycleThread::take_marks(Announce& own) {
  std::vector<Marked> marks;
  {
    const std::lock_guard lock(mutex_);
    marks.swap(marks_);
  }
  for (const Marked& mark : marks) {
    // The step after it, under way by now, may not be sampled.
    if (mark.sampled) {
      events_.keep({mark.begin_ns, pack_duration(EventKind::kStep, mark.begin_ns, mark.end_ns), 0,
                    static_cast<uint32_t>(mark.step), saturated(mark.use.waited_ns / 1000),
                    saturated(mark.use.ran_ns / 1000)});
    }
    if (is_root()) {
      const int64_t version =
          board_.version_between(mark.begin_ns, mark.end_ns, mark.script_version);
      step_collector_.note_own(mark.step, version, mark.end_ns);
    }
    own.steps.push_back({rank_, mark.step, mark.end_ns - mark.begin_ns});
  }
}

void CycleThread::take_step(const StepMark& mark) {
  if (!is_root()) return steps_.push_back(mark);
  if (mark.rank < 0 || mark.rank >= size_) {
    throw Error(ErrorCode::kInternal, "a step was reported for rank " + std::to_string(mark.rank));
  }
  if (const auto report = step_collector_.add(mark)) {
    send_to_launcher(FrameKind::kStep, encode(*report));
  }
}

void CycleThread::take_hold(const StepHold& hold) {
  if (!is_root()) return holds_.push_back(hold);
  if (hold.rank < 0 || hold.rank >= size_) {
    throw Error(ErrorCode::kInternal, "rank " + std::to_string(hold.rank) + " holds its steps");
  }
  board_.note_hold(hold);
}

void CycleThread::receive() {
  tree_.receive([this](size_t branch, const Frame& frame) {
    FAILPOINT("cycle/received");
    if (branch > 0) return take_announce(branch, decode_announce(frame.payload));
    FAILPOINT("cycle/relay");
    tree_.send_down(frame.payload, stop_);
    FAILPOINT("cycle/relayed");
    apply(decode_cycle(frame.payload));
  });
}

void CycleThread::take_announce(size_t branch, const Announce& announce) {
  // First: the launcher hears of a setting before it hears of steps under it.
  if (is_root() && board_.acknowledge(static_cast<int>(branch), announce.adopted_version)) {
    send_to_launcher(FrameKind::kAdopted,
                     encode(Notice{static_cast<int32_t>(announce.adopted_version), ""}));
  }
  for (const StepMark& mark : announce.steps) take_step(mark);
  for (const StepHold& hold : announce.holds) take_hold(hold);
  if (is_root()) {
    negotiator_->announce(branch, announce, now_ns());
    return announce_departures(announce.leaving);
  }
  pending_requests_->add(branch, announce, now_ns());
  cache_.drop_forgotten(pending_requests_->cycles_seen());
  if (!announce.leaving.empty()) send_up(pending_requests_->take_ready(), announce.leaving);
}

void CycleThread::send_to_launcher(FrameKind kind, Bytes payload) {
  if (job_) job_->queue(kind, payload);
}

void CycleThread::receive_orders() {
  if (job_) {
    try {
      job_->flush();
      while (const auto frame = job_->receive()) {
        if (frame->kind == FrameKind::kPropose) board_.stage(decode_proposal(frame->payload));
        if (frame->kind == FrameKind::kTimeline) {
          timeline_.push_back(decode_timeline_order(frame->payload));
        }
      }
    } catch (const Error& error) {
      // Training outlives the tuner: the setting in force stays.
      log(LogLevel::kWarning, options_.log_level, rank_,
          std::string("the launcher is gone; training goes on: ") + error.what());
      job_.reset();
      timeline_.push_back({});  // nobody is left to end what was asked for
    }
  }
  const std::lock_guard lock(mutex_);
  for (const Proposal& proposal : proposals_) board_.stage(proposal);
  proposals_.clear();
  for (const std::string& knobs : declarations_) {
    send_to_launcher(FrameKind::kDeclared, encode(Notice{0, knobs}));
  }
  declarations_.clear();
}

OutgoingBatch CycleThread::cycle_batch() const {
  return {last_emit_ns_, negotiator_->ready_bytes(), negotiator_->everybody_waits()};
}

void CycleThread::emit() {
  if (!can_emit()) return;
  const uint64_t now = now_ns();
  const Setting& setting = board_.setting();
  if (!is_urgent() &&
      due_ns(cycle_batch(), now, setting.cycle_time_ms, setting.fusion_threshold_bytes) > now) {
    return;
  }
  Cycle cycle = compose_cycle(now);
  FAILPOINT("cycle/emit");
  tree_.send_down(encode(cycle), stop_);
  FAILPOINT("cycle/emitted");
  apply(std::move(cycle));
}

// Why no more is added to what is ready.
CutReason CycleThread::reason_to_emit() const {
  const int64_t threshold = board_.setting().fusion_threshold_bytes;
  if (negotiator_->everybody_waits()) return CutReason::kAllReady;
  const bool enough = threshold > 0 && negotiator_->ready_bytes() >= static_cast<size_t>(threshold);
  return enough ? CutReason::kEnough : CutReason::kCycleTime;
}

Cycle CycleThread::compose_cycle(uint64_t now) {
  last_emit_ns_ = now;
  const CutReason reason = reason_to_emit();
  Cycle cycle;
  if (!timeline_.empty()) {
    cycle.timeline = std::move(timeline_.front());
    timeline_.pop_front();
  }
  cycle.number = cycles_applied_ + 1;
  choose_setting(cycle);
  const Setting& setting = cycle.setting ? *cycle.setting : board_.setting();
  Ready ready = negotiator_->take_ready(setting.cache_enabled, cycle.number);
  cycle.evicted = std::move(ready.evicted);
  FusionPlan plan = plan_fusion(std::move(ready.responses), setting.fusion_threshold_bytes, reason);
  cycle.responses = std::move(plan.responses);
  cycle.buckets = std::move(plan.buckets);
  return cycle;
}

void CycleThread::choose_setting(Cycle& cycle) {
  cycle.setting_version = board_.version();
  std::optional<Proposal> proposal;
  if (board_.can_switch()) {
    proposal = board_.take_prepared();
    cycle.switch_at = board_.most_passed() + StepSwitch::kFreeSteps;
  } else if (!board_.is_prepared() && step_switch_.version() == board_.script_version()) {
    proposal = board_.take_staged();
  }
  if (!proposal) return;
  if (cycle.switch_at == 0 && board_.changes_script(*proposal)) {
    cycle.prepares = proposal->version;
    return board_.prepare(*proposal, size_);
  }
  cycle.setting = std::move(proposal->setting);
  // Fixed by the memory every rank holds since init.
  cycle.setting->cache_capacity = board_.setting().cache_capacity;
  cycle.setting_version = proposal->version;
}

void CycleThread::adopt(const Cycle& cycle, uint64_t now) {
  if (cycle.prepares != 0) take_hold({rank_, cycle.prepares, step_switch_.hold()});
  if (!cycle.setting) return;
  if (cycle.switch_at != 0) {
    step_switch_.set(cycle.setting_version, cycle.setting->script, cycle.switch_at);
  }
  board_.adopt(cycle.setting_version, *cycle.setting, now);
  events_.keep({now, pack_duration(EventKind::kKnobAdopted, now, now),
                recorder_.intern(to_json(*cycle.setting)), 0, 0, cycle.setting_version});
}

void CycleThread::apply(Cycle cycle) {
  const uint64_t now = now_ns();
  cycles_applied_ = cycle.number;
  announced_waiting_ = false;
  has_served_ = rank_waits();
  adopt(cycle, now);
  if (cycle.timeline) apply_order(*cycle.timeline);
  for (Response& response : cycle.responses) {
    if (response.compact) cache_.complete(response);
  }
  {
    // Before the first operation completes: its caller sees what it was part of.
    const std::lock_guard lock(mutex_);
    ++counts_.cycles;
    counts_.tensors += cycle.responses.size();
    counts_.buckets += cycle.buckets.size();
    counts_.traffic = tree_.traffic();
    shown_setting_ = board_.setting();
    shown_version_ = board_.version();
  }
  executor_.execute(cycle, board_.setting(), now);
  FAILPOINT("cycle/applied");
  for (const int32_t rank : cycle.departed) on_rank_left(rank);
}

void CycleThread::apply_order(const TimelineOrder& order) {
  if (!options_.timeline) return;
  const std::string why = options_.timeline(order);
  if (!why.empty()) log(LogLevel::kWarning, options_.log_level, rank_, why);
}

// Applies what a response changes besides tensors.
void CycleThread::change(const Response& response) {
  const Request& request = response.request;
  if (!response.error.empty()) return pending_requests().drop(key_of(request));
  if (request.op == OpType::kJoin) return pending_requests().end_join(request.process_set);
  // What changes for GPUs does so in its place among what they carry out.
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

bool CycleThread::has_left(int rank) const {
  return std::find(left_ranks_.begin(), left_ranks_.end(), rank) != left_ranks_.end();
}

// On the root: tells everybody. The ranks themselves hear it, too, and are then free to go.
void CycleThread::announce_departures(const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return;
  Cycle cycle;
  cycle.number = cycles_applied_;
  cycle.setting_version = board_.version();
  cycle.departed = ranks;
  tree_.send_down(encode(cycle), stop_);
  for (const int32_t rank : ranks) {
    send_to_launcher(FrameKind::kLeft, encode(Notice{rank, ""}));
    on_rank_left(rank);
  }
}

void CycleThread::on_rank_left(int rank) {
  FAILPOINT("cycle/on_rank_left");
  left_ranks_.push_back(rank);
  step_switch_.abandon();
  tree_.on_rank_left(rank);
  // All ranks have been given the same, so that it comes to its end.
  if (gpu_ != nullptr) gpu_->drain();
  if (leaving_.load()) {
    return table_.close(Error(ErrorCode::kShutdown, "hvdtune was shut down", rank_));
  }
  table_.close(Error(
      ErrorCode::kRankLost,
      "rank " + std::to_string(rank) +
          " has shut down, so no collective can complete any more. Its script made fewer calls: "
          "it had fewer batches, or this rank makes a call that the others do not. A rank that "
          "runs out of batches before the others calls hvd.join() (with DDP, it trains in "
          "`with model.join():`)",
      rank));
}

// The others may already wait for data that this rank has announced, so it goes on executing until
// rank 0 has taken note; after that nothing is emitted.
void CycleThread::shutdown_handshake() {
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

}  // namespace hvdtune
