// Why nothing moves: what waits for whom, and what each of those is doing instead.
//
// A rank that has not called an operation which others of its process set have called is missing
// there. What it does instead is read from its own report and from how it looks from outside.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/report.h"

namespace hvdtune {

// The state of a rank, seen from outside.
enum class Liveness : uint8_t { kWell, kFrozen, kUnreachable, kDead };

struct RankView {
  std::optional<RankReport> report;  // empty: it did not answer
  Liveness liveness = Liveness::kWell;
  uint64_t silent_ns = 0;    // since it was last heard
  uint64_t idle_ns = 0;      // since its process last computed
  bool stack_moved = false;  // its Python stack is not that of the report before
};

enum class MissingReason : uint8_t {
  kDead,
  kNetwork,
  kFrozen,
  kMismatch,        // it has called another operation under this name
  kDifferentOrder,  // it waits for something that waits, perhaps through others, for this one
  kNeverCalled,     // it neither waits for hvdtune nor computes
  kUnknown,
  kBlocked,  // it waits for something that waits for others
  kBusy,
};
inline constexpr int kMissingReasonCount = 9;
std::string_view name_of(MissingReason reason);

struct MissingRank {
  int rank = 0;
  MissingReason reason = MissingReason::kUnknown;
  std::string detail;
};

// Operations that wait for the same ranks. No missing rank: everyone has called them.
struct Wait {
  uint32_t process_set = 0;
  std::vector<std::string> names;  // oldest first
  std::string description;         // of the first
  uint64_t age_ns = 0;             // of the oldest
  std::vector<int> callers;
  std::vector<MissingRank> missing;  // the plainest cause first
  std::string disagreement;          // how those who have called it differ
  bool is_on_gpus = false;           // all have called it, and these are not done with it yet
};

// The ranks of each process set.
using SetRanks = std::map<uint32_t, std::vector<int>>;

// The oldest first. `fresh_ns`: younger operations are no news, and who has computed within this
// time is busy.
std::vector<Wait> explain(std::span<const RankView> ranks, const SetRanks& sets, uint64_t fresh_ns);

// Whether the job should be given up: the first wait older than limit_ns that nobody who computes
// can end. 0: never.
const Wait* unrecoverable(std::span<const Wait> waits, std::span<const RankView> ranks,
                          uint64_t limit_ns);
// "tensor \"x\" waited 600 s for rank 1, which never called it: ..."
std::string sentence(const Wait& wait);
// The rank at fault, -1 if none.
int rank_at_fault(const Wait& wait);

// Whether nothing can move any more, however long one waits: no rank can call anything, none has
// anything left to carry out that another has carried out, and whatever was called lacks a rank.
bool is_deadlock(std::span<const RankView> ranks, const SetRanks& sets);

struct Outlook {
  uint64_t next_ns = 0;   // until the next page, 0 if this is the last
  uint64_t abort_ns = 0;  // until the job is given up, 0 for never
  bool is_deadlock = false;
};

// One page for a person, of some 60 lines at most.
std::string hang_page(std::span<const Wait> waits, std::span<const RankView> ranks,
                      const Outlook& outlook);

}  // namespace hvdtune
