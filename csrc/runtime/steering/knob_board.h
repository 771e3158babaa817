// The setting in use, and its next replacement.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/knob.h"
#include "wire/message.h"

namespace hvdtune {

// A proposal that changes values of the script's knobs is first prepared: every rank reports the
// number of step boundaries that its script has passed. The proposal is adopted after all reports.
//
// Thread rule: the holder of the progress lock.
class KnobBoard {
 public:
  KnobBoard(const Setting& start, int size)
      : setting_(start), acknowledged_(static_cast<size_t>(size), 0) {}

  const Setting& setting() const { return setting_; }
  uint32_t version() const { return version_; }
  // The last version that has changed values of the script's knobs.
  uint32_t script_version() const { return script_version_; }
  // The version in use at an instant not before the last adoption but one; -1 when an adoption
  // lies between the two, or the script had the values of another version than `script_version`.
  int64_t version_between(uint64_t begin_ns, uint64_t end_ns, uint32_t script_version) const {
    const bool is_after = begin_ns >= adopted_ns_;
    if (!is_after && end_ns >= adopted_ns_) return -1;
    if (script_version != (is_after ? script_version_ : previous_script_version_)) return -1;
    return is_after ? version_ : previous_version_;
  }
  void adopt(uint32_t version, const Setting& setting, uint64_t now_ns) {
    previous_script_version_ = script_version_;
    if (setting.script != setting_.script) script_version_ = version;
    previous_version_ = version_;
    version_ = version;
    setting_ = setting;
    adopted_ns_ = now_ns;
  }

  // Rank 0 only. A proposal replaces one that has not been sent yet.
  void stage(const Proposal& proposal) { staged_ = proposal; }
  std::optional<Proposal> take_staged() { return std::exchange(staged_, std::nullopt); }
  bool has_staged() const { return staged_.has_value(); }
  bool changes_script(const Proposal& proposal) const {
    return proposal.setting.script != setting_.script;
  }
  void prepare(const Proposal& proposal, int ranks) {
    prepared_ = proposal;
    answered_.assign(static_cast<size_t>(ranks), false);
    most_passed_ = 0;
  }
  bool is_prepared() const { return prepared_.has_value(); }
  void note_hold(const StepHold& hold) {
    if (!prepared_ || hold.version != prepared_->version) return;
    answered_[static_cast<size_t>(hold.rank)] = true;
    most_passed_ = std::max(most_passed_, hold.passed);
  }
  // True if all ranks have answered: the prepared proposal can be adopted.
  bool can_switch() const {
    return prepared_ && std::ranges::all_of(answered_, [](bool each) { return each; });
  }
  std::optional<Proposal> take_prepared() { return std::exchange(prepared_, std::nullopt); }
  // The most step boundaries that a rank had passed when it answered.
  uint64_t most_passed() const { return most_passed_; }
  // Returns true when this is the last rank to adopt the version in use.
  bool acknowledge(int rank, uint32_t version) {
    uint32_t& known = acknowledged_[static_cast<size_t>(rank)];
    if (known == version) return false;
    known = version;
    return std::all_of(acknowledged_.begin(), acknowledged_.end(),
                       [&](uint32_t each) { return each == version_; });
  }

 private:
  Setting setting_;
  uint32_t version_ = 0;
  uint32_t previous_version_ = 0;
  uint64_t adopted_ns_ = 0;
  uint32_t script_version_ = 0;
  uint32_t previous_script_version_ = 0;
  std::optional<Proposal> staged_;
  std::optional<Proposal> prepared_;
  std::vector<bool> answered_;
  uint64_t most_passed_ = 0;
  std::vector<uint32_t> acknowledged_;
};

}  // namespace hvdtune
