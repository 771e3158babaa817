// Collects the durations of each step from all ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

// Rank 0's. Thread rule: the holder of the progress lock.
class StepCollector {
 public:
  explicit StepCollector(int size) : size_(size) {}

  // Adds the version and the end of rank 0's own step, before or after the other ranks' add().
  void note_own(uint64_t step, int64_t version, uint64_t end_ns) {
    OpenStep& open = steps_[step];
    open.report.version = version;
    open.report.end_ns = end_ns;
  }
  // The report of the step once the last rank has reported its duration.
  std::optional<StepReport> add(const StepMark& mark) {
    OpenStep& open = steps_[mark.step];
    open.report.durations_ns.resize(static_cast<size_t>(size_), 0);
    open.report.durations_ns[static_cast<size_t>(mark.rank)] = mark.duration_ns;
    if (++open.reported < size_) {
      // A rank that never reports must not keep the steps of the others open.
      if (steps_.size() > kMostOpen) steps_.erase(steps_.begin());
      return std::nullopt;
    }
    StepReport report = std::move(open.report);
    report.step = mark.step;
    // Also closes steps that a rank has skipped.
    steps_.erase(steps_.begin(), std::next(steps_.find(mark.step)));
    return report;
  }

 private:
  struct OpenStep {
    StepReport report;
    int reported = 0;
  };
  static constexpr size_t kMostOpen = 4096;

  int size_;
  std::map<uint64_t, OpenStep> steps_;
};

}  // namespace hvdtune
