// Steps as all ranks saw them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

// Rank 0's. Thread rule: the cycle thread.
class StepLedger {
 public:
  explicit StepLedger(int size) : size_(size) {}

  // What rank 0 knows of its own step; to be called before or after the other ranks' add().
  void note_own(uint64_t step, int64_t version, uint64_t end_ns) {
    Row& row = rows_[step];
    row.report.version = version;
    row.report.end_ns = end_ns;
  }
  // The report of the step once the last rank has told its duration.
  std::optional<StepReport> add(const StepMark& mark) {
    Row& row = rows_[mark.step];
    row.report.durations_ns.resize(static_cast<size_t>(size_), 0);
    row.report.durations_ns[static_cast<size_t>(mark.rank)] = mark.duration_ns;
    if (++row.told < size_) {
      // A rank that never tells must not make the others' rows pile up.
      if (rows_.size() > kMostOpen) rows_.erase(rows_.begin());
      return std::nullopt;
    }
    StepReport report = std::move(row.report);
    report.step = mark.step;
    // A rank that skips steps would leave rows behind for ever.
    rows_.erase(rows_.begin(), std::next(rows_.find(mark.step)));
    return report;
  }

 private:
  struct Row {
    StepReport report;
    int told = 0;
  };
  static constexpr size_t kMostOpen = 4096;

  int size_;
  std::map<uint64_t, Row> rows_;
};

}  // namespace hvdtune
