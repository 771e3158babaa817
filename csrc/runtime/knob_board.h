// The setting in force, and the one that is to replace it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/knob.h"
#include "wire/message.h"

namespace hvdtune {

// Thread rule: the cycle thread.
class KnobBoard {
 public:
  KnobBoard(const Setting& start, int size)
      : setting_(start), acknowledged_(static_cast<size_t>(size), 0) {}

  const Setting& setting() const { return setting_; }
  uint32_t version() const { return version_; }
  // The version in force at an instant not before the last adoption but one; -1 when an adoption
  // lies between the two.
  int64_t version_between(uint64_t begin_ns, uint64_t end_ns) const {
    if (begin_ns >= adopted_ns_) return version_;
    return end_ns < adopted_ns_ ? int64_t{previous_version_} : -1;
  }
  void adopt(uint32_t version, const Setting& setting, uint64_t now_ns) {
    previous_version_ = version_;
    version_ = version;
    setting_ = setting;
    adopted_ns_ = now_ns;
  }

  // Rank 0 only. A proposal replaces one that has not been sent yet.
  void stage(const Proposal& proposal) { staged_ = proposal; }
  std::optional<Proposal> take_staged() { return std::exchange(staged_, std::nullopt); }
  bool has_staged() const { return staged_.has_value(); }
  // True when this makes every rank known to have adopted the version in force.
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
  std::optional<Proposal> staged_;
  std::vector<uint32_t> acknowledged_;
};

}  // namespace hvdtune
