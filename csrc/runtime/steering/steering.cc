#include "runtime/steering/steering.h"

#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace hvdtune {

Steering::Steering(const Services& services, LauncherLink& launcher, const Setting& setting,
                   LogLevel log_level, ApplyTimelineOrder apply_order, size_t branches)
    : rank_(services.mesh.topology.rank),
      size_(services.mesh.topology.size),
      log_level_(log_level),
      apply_order_(std::move(apply_order)),
      recorder_(services.recorder),
      events_(services.events),
      launcher_(launcher),
      board_(setting, static_cast<int>(branches)),
      step_collector_(size_),
      step_switch_(setting.script),
      shown_setting_(setting) {}

void Steering::mark_step(CpuTime use) {
  const uint32_t script_version = step_switch_.version();
  {
    const uint64_t now = now_ns();
    const std::lock_guard lock(mutex_);
    if (last_mark_ns_ != 0) {
      // A step in which recording began or ended is incomplete.
      const bool sampled = step_sampled_ && recorder_.enabled();
      marks_.push_back({next_step_++, last_mark_ns_, now, sampled, use, script_version});
    }
    last_mark_ns_ = now;
    recorder_.begin_step(next_step_);
    step_sampled_ = recorder_.enabled();
  }
  step_switch_.pass();
}

void Steering::declare(const std::string& knobs) {
  const std::lock_guard lock(mutex_);
  declarations_.push_back(knobs);
}

uint32_t Steering::propose(const Setting& setting) {
  if (!is_root()) {
    throw Error(ErrorCode::kUsage,
                "only rank 0 can propose a setting; this is rank " + std::to_string(rank_));
  }
  const std::lock_guard lock(mutex_);
  const uint32_t version = next_version_++;
  proposals_.push_back({version, setting});
  return version;
}

Setting Steering::setting() const {
  const std::lock_guard lock(mutex_);
  return shown_setting_;
}

uint32_t Steering::version() const {
  const std::lock_guard lock(mutex_);
  return shown_version_;
}

void Steering::take_marks(Announce& own) {
  std::vector<Marked> marks;
  {
    const std::lock_guard lock(mutex_);
    marks.swap(marks_);
  }
  for (const Marked& mark : marks) {
    // The current step, which follows, may not be sampled.
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

void Steering::take_reports(size_t branch, const Announce& announce) {
  // First: the launcher learns of a setting before it gets steps under it.
  if (is_root() && board_.acknowledge(static_cast<int>(branch), announce.adopted_version)) {
    launcher_.send(FrameKind::kAdopted,
                   encode(Notice{static_cast<int32_t>(announce.adopted_version), ""}));
  }
  for (const StepMark& mark : announce.steps) take_step(mark);
  for (const StepHold& hold : announce.holds) take_hold(hold);
}

void Steering::take_step(const StepMark& mark) {
  if (!is_root()) return steps_.push_back(mark);
  if (mark.rank < 0 || mark.rank >= size_) {
    throw Error(ErrorCode::kInternal, "received a step of unknown rank " +
                                          std::to_string(mark.rank) + "; the job has " +
                                          std::to_string(size_) + " ranks");
  }
  if (const auto report = step_collector_.add(mark)) {
    launcher_.send(FrameKind::kStep, encode(*report));
  }
}

void Steering::take_hold(const StepHold& hold) {
  if (!is_root()) return holds_.push_back(hold);
  if (hold.rank < 0 || hold.rank >= size_) {
    throw Error(ErrorCode::kInternal, "received a hold of unknown rank " +
                                          std::to_string(hold.rank) + "; the job has " +
                                          std::to_string(size_) + " ranks");
  }
  board_.note_hold(hold);
}

void Steering::put_reports(Announce& announce) {
  announce.steps = std::exchange(steps_, {});
  announce.holds = std::exchange(holds_, {});
}

void Steering::receive_orders() {
  const bool connected = launcher_.receive([this](const Frame& frame) {
    if (frame.kind == FrameKind::kPropose) board_.stage(decode_proposal(frame.payload));
    if (frame.kind == FrameKind::kTimeline) {
      timeline_.push_back(decode_timeline_order(frame.payload));
    }
  });
  // Without a launcher no order would end a recording that it started.
  if (!connected) timeline_.push_back({});
  const std::lock_guard lock(mutex_);
  for (const Proposal& proposal : proposals_) board_.stage(proposal);
  proposals_.clear();
  for (const std::string& knobs : declarations_) {
    launcher_.send(FrameKind::kDeclared, encode(Notice{0, knobs}));
  }
  declarations_.clear();
}

void Steering::put_orders(Cycle& cycle) {
  if (!timeline_.empty()) {
    cycle.timeline = std::move(timeline_.front());
    timeline_.pop_front();
  }
  choose_setting(cycle);
}

void Steering::choose_setting(Cycle& cycle) {
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
  // Every rank allocated its memory for this value at init.
  cycle.setting->cache_capacity = board_.setting().cache_capacity;
  cycle.setting_version = proposal->version;
}

void Steering::apply(const Cycle& cycle, uint64_t now) {
  adopt(cycle, now);
  if (!cycle.timeline || !apply_order_) return;
  const std::string why = apply_order_(*cycle.timeline);
  if (!why.empty()) log(LogLevel::kWarning, log_level_, rank_, why);
}

void Steering::adopt(const Cycle& cycle, uint64_t now) {
  if (cycle.prepares != 0) take_hold({rank_, cycle.prepares, step_switch_.hold()});
  if (!cycle.setting) return;
  if (cycle.switch_at != 0) {
    step_switch_.set(cycle.setting_version, cycle.setting->script, cycle.switch_at);
  }
  board_.adopt(cycle.setting_version, *cycle.setting, now);
  events_.keep({now, pack_duration(EventKind::kKnobAdopted, now, now),
                recorder_.intern(to_json(*cycle.setting)), 0, 0, cycle.setting_version});
  const std::lock_guard lock(mutex_);
  shown_setting_ = board_.setting();
  shown_version_ = board_.version();
}

}  // namespace hvdtune
