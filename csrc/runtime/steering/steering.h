// The settings and steps of one rank: the orders of the launcher and of the script, and the reports
// about the script's steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/knob.h"
#include "base/log.h"
#include "runtime/cpu_time_meter.h"
#include "runtime/services.h"
#include "runtime/steering/knob_board.h"
#include "runtime/steering/launcher_link.h"
#include "runtime/steering/step_collector.h"
#include "runtime/steering/step_switch.h"
#include "wire/message.h"

namespace hvdtune {

// The launcher numbers its proposals from 1, separately from those of scripts.
inline constexpr uint32_t kFirstScriptVersion = uint32_t{1} << 30;

// Carries out an order of the launcher about the timeline, without waiting. Returns the reason for
// a failure, else "".
using ApplyTimelineOrder = std::function<std::string(const TimelineOrder&)>;

class Steering {
 public:
  // `launcher` outlives this object. `branches` counts this rank and its children.
  Steering(const Services& services, LauncherLink& launcher, const Setting& setting,
           LogLevel log_level, ApplyTimelineOrder apply_order, size_t branches);

  // These may be called from any thread. See CycleThread.
  void mark_step(CpuTime use);
  void declare(const std::string& knobs);
  uint32_t propose(const Setting& setting);
  Setting setting() const;
  uint32_t version() const;
  std::vector<ScriptValue> script_values() const { return step_switch_.values(); }
  uint32_t script_version() const { return step_switch_.version(); }
  // Releases a script that waits at a step boundary: no setting is adopted any more.
  void abandon() { step_switch_.abandon(); }

  // The rest is for the holder of the progress lock.
  const KnobBoard& board() const { return board_; }
  // True if an order must reach all ranks at once.
  bool is_urgent() const { return !timeline_.empty() || board_.can_switch(); }
  // True if held steps must reach the root at once: scripts may wait for the answer.
  bool has_holds() const { return !holds_.empty(); }
  // Records the steps that ended on this rank, and adds them to its own announcement.
  void take_marks(Announce& own);
  // Takes what a branch reports about settings and steps.
  void take_reports(size_t branch, const Announce& announce);
  // Moves the reports of the ranks below into the message to the parent.
  void put_reports(Announce& announce);
  // Rank 0: stages the new orders of the launcher and of the script.
  void receive_orders();
  // Rank 0: adds the next orders to the cycle.
  void put_orders(Cycle& cycle);
  // Carries out the orders of a cycle.
  void apply(const Cycle& cycle, uint64_t now);

 private:
  struct Marked {
    uint64_t step;
    uint64_t begin_ns;
    uint64_t end_ns;
    bool sampled;
    CpuTime use;
    uint32_t script_version;
  };

  void take_step(const StepMark& mark);
  void take_hold(const StepHold& hold);
  void choose_setting(Cycle& cycle);
  void adopt(const Cycle& cycle, uint64_t now);
  bool is_root() const { return rank_ == 0; }

  const int rank_;
  const int size_;
  const LogLevel log_level_;
  const ApplyTimelineOrder apply_order_;
  Recorder& recorder_;             // has locks of its own
  Recorder::EventBuffer& events_;  // the progress lock's, like the next six
  LauncherLink& launcher_;
  KnobBoard board_;
  StepCollector step_collector_;
  std::vector<StepMark> steps_;         // to be passed on
  std::vector<StepHold> holds_;         // to be passed on at once
  std::deque<TimelineOrder> timeline_;  // the root's: to be passed on

  StepSwitch step_switch_;    // has a lock of its own
  mutable std::mutex mutex_;  // guards the rest
  std::vector<Marked> marks_;
  uint64_t next_step_ = 0;
  uint64_t last_mark_ns_ = 0;
  bool step_sampled_ = false;  // from its begin
  std::vector<Proposal> proposals_;
  std::vector<std::string> declarations_;
  uint32_t next_version_ = kFirstScriptVersion;
  Setting shown_setting_;
  uint32_t shown_version_ = 0;
};

}  // namespace hvdtune
