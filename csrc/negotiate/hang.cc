#include "negotiate/hang.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <utility>

#include "base/plural.h"

namespace hvdtune {
namespace {

constexpr size_t kMostWaits = 8;
constexpr size_t kMostRanks = 8;  // named one by one
constexpr size_t kMostStacks = 3;
constexpr size_t kMostNames = 2;

// Names are "call.name".
std::string_view stem(std::string_view name) {
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::string seconds(uint64_t ns) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), ns < 10'000'000'000 ? "%.1f s" : "%.0f s",
                static_cast<double>(ns) / 1e9);
  return text.data();
}

// "rank 3", "ranks 0, 2-5"
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ranks[last]);
    i = last + 1;
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

struct Call {
  std::map<int, const Called*> by_rank;
  std::vector<int> missing;
  uint64_t age_ns = 0;

  // Then every rank of the set has called it; those that do not say so any more are done with it.
  bool is_on_gpus() const {
    return std::ranges::any_of(
        by_rank, [](const auto& called) { return called.second->gpu != GpuProgress::kNone; });
  }
};
using CallKey = std::pair<uint32_t, std::string>;

// The calls of each rank, and the wait graph that follows from them.
class Analysis {
 public:
  Analysis(std::span<const RankView> ranks, const SetRanks& sets, uint64_t fresh_ns);

  std::vector<Wait> waits() const;

 private:
  void add_missing(const CallKey& key, Call& call, const SetRanks& sets) const;
  bool has_called(int rank, const CallKey& key, const Call& call) const;
  const RankView& view(int rank) const { return ranks_[static_cast<size_t>(rank)]; }
  Wait wait(const CallKey& key, const Call& call) const;
  MissingRank why(int rank, const CallKey& key) const;
  const Called* same_name(int rank, const CallKey& key) const;
  const Called* blocked_in(int rank) const;
  std::set<int> waited_for_by(int rank) const;

  std::span<const RankView> ranks_;
  uint64_t fresh_ns_;
  std::map<CallKey, Call> calls_;
  std::map<int, std::set<int>> waits_for_;  // ranks with a blocked caller, and for whom
};

Analysis::Analysis(std::span<const RankView> ranks, const SetRanks& sets, uint64_t fresh_ns)
    : ranks_(ranks), fresh_ns_(fresh_ns) {
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].report) continue;
    for (const Called& called : ranks[rank].report->called) {
      Call& call = calls_[{called.process_set, called.name}];
      call.by_rank.emplace(static_cast<int>(rank), &called);
      call.age_ns = std::max(call.age_ns, called.age_ns);
    }
  }
  for (auto& [key, call] : calls_) add_missing(key, call, sets);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const Called* called = blocked_in(static_cast<int>(rank));
    if (called == nullptr) continue;
    const auto& missing = calls_.at({called->process_set, called->name}).missing;
    waits_for_[static_cast<int>(rank)] = {missing.begin(), missing.end()};
    waits_for_[static_cast<int>(rank)].erase(static_cast<int>(rank));  // for its own GPU
  }
}

void Analysis::add_missing(const CallKey& key, Call& call, const SetRanks& sets) const {
  if (call.is_on_gpus()) {
    for (const auto& [rank, called] : call.by_rank) {
      if (called->gpu == GpuProgress::kWaits) call.missing.push_back(rank);
    }
    return;
  }
  const auto members = sets.find(key.first);
  if (members == sets.end()) return;
  for (const int rank : members->second) {
    if (!has_called(rank, key, call)) call.missing.push_back(rank);
  }
}

bool Analysis::has_called(int rank, const CallKey& key, const Call& call) const {
  if (call.by_rank.contains(rank)) return true;
  const auto& report = view(rank).report;
  if (!report) return false;
  return std::ranges::any_of(report->called, [&](const Called& called) {
    return called.joins && called.process_set == key.first;
  });
}

// What the callers of a rank are waiting for: with several, the oldest that somebody has not
// called.
const Called* Analysis::blocked_in(int rank) const {
  const auto& report = view(rank).report;
  if (!report || report->waiting_threads == 0) return nullptr;
  const Called* oldest = nullptr;
  for (const Called& called : report->called) {
    const Call& call = calls_.at({called.process_set, called.name});
    if (call.missing.empty() && !call.is_on_gpus()) continue;
    if (oldest == nullptr || called.age_ns > oldest->age_ns) oldest = &called;
  }
  return oldest;
}

const Called* Analysis::same_name(int rank, const CallKey& key) const {
  for (const Called& called : view(rank).report->called) {
    if (called.process_set == key.first && stem(called.name) == stem(key.second)) return &called;
  }
  return nullptr;
}

// Everyone on whom `rank` waits, directly or through others.
std::set<int> Analysis::waited_for_by(int rank) const {
  std::set<int> seen;
  std::vector<int> next = {rank};
  while (!next.empty()) {
    const auto found = waits_for_.find(next.back());
    next.pop_back();
    if (found == waits_for_.end()) continue;
    for (const int other : found->second) {
      if (seen.insert(other).second) next.push_back(other);
    }
  }
  return seen;
}

MissingRank Analysis::why(int rank, const CallKey& key) const {
  const RankView& view = this->view(rank);
  const std::string silent = "it has been silent for " + seconds(view.silent_ns);
  if (view.liveness == Liveness::kDead)
    return {rank, MissingReason::kDead, "its process has ended"};
  if (view.liveness == Liveness::kUnreachable) {
    return {rank, MissingReason::kNetwork, silent + " and its host does not acknowledge data"};
  }
  if (view.liveness == Liveness::kFrozen) return {rank, MissingReason::kFrozen, silent};
  if (!view.report || (view.report->left_out > 0 && !same_name(rank, key))) {
    return {rank, MissingReason::kUnknown, "it answers heartbeats but sent no report"};
  }
  if (calls_.at(key).is_on_gpus()) {
    return {rank, MissingReason::kBusy, "its GPU is still computing the tensor"};
  }
  if (const Called* other = same_name(rank, key)) {
    return {rank, MissingReason::kMismatch,
            "it called " + other->description + " under this name (\"" + other->name + "\")"};
  }
  if (const Called* other = blocked_in(rank)) {
    const Call& call = calls_.at({other->process_set, other->name});
    if (call.is_on_gpus()) {
      return {rank, MissingReason::kBlocked,
              "it waits for \"" + other->name + "\", which runs on the GPUs"};
    }
    const std::vector<int>& missing = call.missing;
    const std::string where =
        "it waits for \"" + other->name + "\", which " + ranks_text(missing) + " ";
    if (waited_for_by(rank).contains(rank)) {
      return {rank, MissingReason::kDifferentOrder,
              where + (missing.size() == 1 ? "has" : "have") + " not called"};
    }
    return {rank, MissingReason::kBlocked,
            where + (missing.size() == 1 ? "has" : "have") + " not called yet"};
  }
  if (view.idle_ns < fresh_ns_) {
    return {rank, MissingReason::kBusy,
            "its process used the CPU " +
                (view.idle_ns < 1'000'000'000 ? std::string("a moment") : seconds(view.idle_ns)) +
                " ago"};
  }
  if (view.stack_moved) return {rank, MissingReason::kBusy, "its Python stack keeps changing"};
  return {rank, MissingReason::kNeverCalled,
          "it waits outside of hvdtune and has used no CPU for " + seconds(view.idle_ns)};
}

Wait Analysis::wait(const CallKey& key, const Call& call) const {
  Wait wait;
  wait.process_set = key.first;
  wait.names = {key.second};
  wait.age_ns = call.age_ns;
  wait.is_on_gpus = call.is_on_gpus();
  const auto& [first, description] = *call.by_rank.begin();
  wait.description = description->description;
  for (const auto& [rank, called] : call.by_rank) {
    if (wait.is_on_gpus && called->gpu == GpuProgress::kNone) continue;  // its next of the name
    wait.callers.push_back(rank);
    if (wait.disagreement.empty() && !called->joins && called->description != wait.description) {
      wait.disagreement = "mismatch: rank " + std::to_string(first) + " called " +
                          wait.description + ", rank " + std::to_string(rank) + " called " +
                          called->description;
    }
  }
  for (const int rank : call.missing) wait.missing.push_back(why(rank, key));
  std::ranges::stable_sort(wait.missing, {}, &MissingRank::reason);
  return wait;
}

std::vector<Wait> Analysis::waits() const {
  std::vector<Wait> all;
  for (const auto& [key, call] : calls_) {
    if (call.age_ns >= fresh_ns_) all.push_back(wait(key, call));
  }
  std::ranges::stable_sort(all, std::greater(), &Wait::age_ns);
  std::vector<Wait> merged;
  for (Wait& wait : all) {
    const auto ranks_of = [](const Wait& of) {
      std::vector<std::pair<int, MissingReason>> ranks;
      for (const MissingRank& missing : of.missing)
        ranks.emplace_back(missing.rank, missing.reason);
      return ranks;
    };
    const auto same = std::ranges::find_if(merged, [&](const Wait& other) {
      return other.process_set == wait.process_set && other.callers == wait.callers &&
             other.is_on_gpus == wait.is_on_gpus && other.disagreement.empty() &&
             wait.disagreement.empty() && ranks_of(other) == ranks_of(wait);
    });
    if (same == merged.end()) {
      merged.push_back(std::move(wait));
    } else {
      same->names.push_back(std::move(wait.names[0]));
    }
  }
  return merged;
}

std::string title(const Wait& wait) {
  std::string text;
  for (size_t i = 0; i < std::min(wait.names.size(), kMostNames); ++i) {
    text += (i == 0 ? "\"" : ", \"") + wait.names[i] + "\"";
    if (i == 0) text += " " + wait.description;
  }
  if (wait.names.size() > kMostNames) {
    text += " and " + std::to_string(wait.names.size() - kMostNames) + " more";
  }
  return text;
}

std::string paragraph(const Wait& wait) {
  std::string text = "  " + title(wait);
  if (wait.process_set != 0) text += " of process set " + std::to_string(wait.process_set);
  text += "\n    called " + seconds(wait.age_ns) + " ago by " + ranks_text(wait.callers);
  if (wait.missing.empty() && wait.is_on_gpus) {
    return text + ", but does not finish on their " + (wait.callers.size() == 1 ? "GPU" : "GPUs") +
           ": a GPU does other work, or the network moves no data\n";
  }
  if (wait.missing.empty()) {
    return text + "; every rank has called it, but no data moves (network)\n";
  }
  text += ", waits for\n";
  if (!wait.disagreement.empty()) text += "    " + wait.disagreement + "\n";
  for (size_t i = 0; i < std::min(wait.missing.size(), kMostRanks); ++i) {
    const MissingRank& missing = wait.missing[i];
    text += "    rank " + std::to_string(missing.rank) + ": ";
    text.append(name_of(missing.reason)).append("; ").append(missing.detail).append("\n");
  }
  if (wait.missing.size() > kMostRanks) {
    text += "    and " + counted(wait.missing.size() - kMostRanks, "rank") + " more\n";
  }
  return text;
}

// "" where the reasons that the paragraphs give need no explanation.
std::string likely_cause(std::span<const Wait> waits) {
  const auto is_other_call = [](const MissingRank& missing) {
    return missing.reason == MissingReason::kDifferentOrder;
  };
  for (const Wait& wait : waits) {
    if (!std::ranges::any_of(wait.missing, is_other_call)) continue;
    return "  likely cause: a rank has fewer batches than the others, or only some ranks make a "
           "call, for example\n"
           "  in validation or logging. Make the same calls on all ranks; a rank without batches "
           "calls hvd.join().\n";
  }
  return {};
}

// Returns each missing rank once, those with the plainest cause first.
std::vector<int> missing_ranks(std::span<const Wait> waits) {
  std::vector<MissingRank> all;
  for (const Wait& wait : waits) all.insert(all.end(), wait.missing.begin(), wait.missing.end());
  std::ranges::stable_sort(all, {}, &MissingRank::reason);
  std::vector<int> ranks;
  for (const MissingRank& missing : all) {
    if (!std::ranges::count(ranks, missing.rank)) ranks.push_back(missing.rank);
  }
  return ranks;
}

std::string stacks(std::span<const Wait> waits, std::span<const RankView> ranks) {
  std::string text;
  size_t shown = 0;
  for (const int rank : missing_ranks(waits)) {
    const auto& report = ranks[static_cast<size_t>(rank)].report;
    if (!report || report->stack.empty() || shown++ == kMostStacks) continue;
    text += "  rank " + std::to_string(rank) + "'s main thread, most recent call first:\n";
    text += report->stack;
    if (text.back() != '\n') text += '\n';
  }
  return text;
}

}  // namespace

std::string_view name_of(MissingReason reason) {
  static constexpr std::array<std::string_view, kMissingReasonCount> kNames = {
      "dead",
      "network",
      "frozen",
      "mismatch",
      "called in a different order or with other tensors",
      "never called",
      "unknown",
      "waits for others",
      "still computing"};
  return kNames[static_cast<size_t>(reason)];
}

std::vector<Wait> explain(std::span<const RankView> ranks, const SetRanks& sets,
                          uint64_t fresh_ns) {
  return Analysis(ranks, sets, fresh_ns).waits();
}

const Wait* unrecoverable(std::span<const Wait> waits, std::span<const RankView> ranks,
                          uint64_t limit_ns) {
  if (limit_ns == 0) return nullptr;
  const auto is_given_up = [&](const MissingRank& missing) {
    if (missing.reason == MissingReason::kBusy || missing.reason == MissingReason::kBlocked)
      return false;
    // One that computed until a moment ago may be about to call, also where the machine is too
    // crowded for it to report in time.
    const bool may_call =
        missing.reason == MissingReason::kNeverCalled || missing.reason == MissingReason::kUnknown;
    return !may_call || ranks[static_cast<size_t>(missing.rank)].idle_ns >= limit_ns;
  };
  for (const Wait& wait : waits) {
    if (wait.age_ns < limit_ns) continue;
    if (wait.missing.empty() || std::ranges::any_of(wait.missing, is_given_up)) return &wait;
  }
  return nullptr;
}

int rank_at_fault(const Wait& wait) { return wait.missing.empty() ? -1 : wait.missing[0].rank; }

std::string sentence(const Wait& wait) {
  std::string text = "tensor \"" + wait.names[0] + "\" waited " + seconds(wait.age_ns);
  if (wait.missing.empty() && wait.is_on_gpus) {
    return text + " to finish on the " + (wait.callers.size() == 1 ? "GPU" : "GPUs") + " of " +
           ranks_text(wait.callers);
  }
  if (wait.missing.empty()) return text + " although every rank has called it: no data moves";
  const MissingRank& first = wait.missing[0];
  text += " for rank " + std::to_string(first.rank) + ": ";
  text.append(name_of(first.reason)).append("; ").append(first.detail);
  if (wait.missing.size() > 1) {
    text += " (and for " + std::to_string(wait.missing.size() - 1) + " more)";
  }
  return text;
}

bool is_deadlock(std::span<const RankView> ranks, const SetRanks& sets) {
  const auto is_blocked = [&](const RankView& view) {
    return view.liveness == Liveness::kWell && view.report && view.report->blocked &&
           view.report->left_out == 0 && view.report->cycles == ranks[0].report->cycles &&
           std::ranges::all_of(view.report->called, [](const Called& called) {
             return called.gpu == GpuProgress::kNone;
           });
  };
  if (ranks.empty() || !ranks[0].report || !std::ranges::all_of(ranks, is_blocked)) return false;
  const std::vector<Wait> waits = explain(ranks, sets, 0);
  const auto lacks_a_rank = [](const Wait& wait) { return !wait.missing.empty(); };
  return !waits.empty() && std::ranges::all_of(waits, lacks_a_rank);
}

std::string hang_page(std::span<const Wait> waits, std::span<const RankView> ranks,
                      const Outlook& outlook) {
  std::string text = "no progress for " + seconds(waits.empty() ? 0 : waits[0].age_ns);
  if (outlook.is_deadlock) {
    text += ", and none is possible: every rank waits for an operation that another has not called";
  }
  if (outlook.next_ns == 0) {
    text += "; the job ends\n";
  } else {
    text += "; next report in " + seconds(outlook.next_ns);
    if (outlook.abort_ns > 0) {
      text += ", the job ends in " + seconds(outlook.abort_ns);
      if (!outlook.is_deadlock) text += " unless a rank computes";
    }
    text += "\n";
  }
  for (const Wait& wait : waits.first(std::min(waits.size(), kMostWaits))) {
    text += paragraph(wait);
  }
  if (waits.size() > kMostWaits) {
    text += "  and " + counted(waits.size() - kMostWaits, "more group") + " of tensors\n";
  }
  return text + likely_cause(waits) + stacks(waits, ranks);
}

}  // namespace hvdtune
