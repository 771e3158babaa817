// Notices that nothing moves and finds out why.
//
// Every rank tells rank 0 with its pings for how long it has been stuck. When that is long enough,
// rank 0 asks all for a report, explains them (negotiate/hang.h) and sends everyone the page; again
// after twice the time, and so on, until the job moves or is given up. It asks sooner when all
// ranks say that they cannot call anything: then the page comes as soon as their reports prove a
// deadlock.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "negotiate/hang.h"
#include "runtime/health/stack_dump.h"
#include "runtime/health/work_counter.h"
#include "runtime/operation.h"
#include "wire/report.h"

namespace hvdtune {

struct HangOptions {
  std::chrono::nanoseconds warning = std::chrono::seconds(5);  // 0: neither told nor given up
  std::chrono::nanoseconds abort = std::chrono::seconds(600);  // 0: never
  std::string about;  // a page's first line: which ranks its numbers stand for; empty: the job's
  StackSource stack;
};

// The next action of rank 0.
struct AskAll {
  uint32_t round = 0;
};
struct TellAll {
  std::string page;
};
struct GiveUp {
  int rank = -1;  // at fault
  std::string text;
  std::string page;
};
using HangStep = std::variant<std::monostate, AskAll, TellAll, GiveUp>;

// Thread rule: the health thread.
class HangDetector {
 public:
  // `sets` gives the ranks of each process set.
  HangDetector(int rank, int size, const HangOptions& options, const OperationTable& table,
               const WorkCounter& work_counter, std::function<SetRanks()> sets);

  // This rank: how it is, and what it reports when asked. The report is ready some milliseconds
  // after it was begun.
  Pulse pulse(uint64_t now);
  void begin_report(uint32_t round, uint64_t now);
  bool is_reporting() const { return reporting_; }
  std::optional<RankReport> finish_report(uint64_t now);

  // Rank 0: what the others reported. Of `liveness_views`, by rank, the liveness and the silence
  // count.
  void note(int rank, const Pulse& pulse, uint64_t now);
  void note(int rank, RankReport report);
  HangStep step(uint64_t now, std::vector<RankView> liveness_views);

 private:
  // The work of a process set, as last seen to move.
  struct Move {
    uint64_t count = 0;
    uint64_t at_ns = 0;
  };
  struct PeerState {
    uint64_t stuck_ns = 0;
    uint64_t cpu_ns = 0;
    uint64_t pulse_ns = 0;     // when it came
    uint64_t computed_ns = 0;  // when it last computed
    bool blocked = false;
    std::optional<RankReport> report;
    std::string last_stack;
  };
  uint64_t stuck_ns(uint64_t now);
  HangStep decide(uint64_t now, std::vector<RankView> views);
  void complete(std::vector<RankView>& views, uint64_t now) const;
  void forget_hang();
  bool all_blocked() const;

  const int rank_;
  const HangOptions options_;
  const uint64_t warning_ns_;
  const uint64_t abort_ns_;
  const OperationTable& table_;
  const WorkCounter& work_counter_;
  const std::function<SetRanks()> sets_;

  std::map<uint32_t, Move> moves_;  // by process set
  StackDump stack_;
  bool reporting_ = false;
  uint32_t report_round_ = 0;
  uint64_t report_begun_ns_ = 0;

  std::vector<PeerState> peers_;  // rank 0's, by rank
  uint32_t round_ = 0;
  bool asking_ = false;
  uint64_t asked_ns_ = 0;
  uint64_t hang_ns_ = 0;       // the longest that any rank is stuck
  uint64_t next_page_ns_ = 0;  // as a length of the hang
  uint64_t next_judgement_ns_ = 0;
  uint64_t next_proof_ns_ = 0;  // when to ask whether this is a deadlock
};

}  // namespace hvdtune
