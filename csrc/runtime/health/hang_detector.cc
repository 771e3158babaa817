#include "runtime/health/hang_detector.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

#include "negotiate/validate.h"

namespace hvdtune {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
// A process computes when it gets this part of a processor: several times what hvdtune's own
// threads need while nothing moves, and what an equal share of a crowded machine still is.
constexpr uint64_t kLeastShare = 30;
constexpr size_t kMostCalled = 4096;
// How long a main thread may take to write its stack, and the ranks to report.
constexpr uint64_t kStackNs = kSecond / 2;
constexpr uint64_t kReportNs = 3 * kSecond / 2;
// How often a hang that is old enough is judged again while somebody computes.
constexpr uint64_t kJudgeAgainNs = 5 * kSecond;
// How long nothing has moved when ranks that are all blocked are asked first, and then again after
// twice the time. It is longer than pulses take to say that something moves, and than collectives
// commonly do: asking interrupts the main threads.
constexpr uint64_t kProofNs = kSecond;
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();

uint64_t count(std::chrono::nanoseconds time) {
  return static_cast<uint64_t>(std::max<int64_t>(time.count(), 0));
}

uint64_t process_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<uint64_t>(time.tv_sec) * kSecond + static_cast<uint64_t>(time.tv_nsec);
}

}  // namespace

HangDetector::HangDetector(int rank, int size, const HangOptions& options,
                           const OperationTable& table, const WorkCounter& work_counter,
                           std::function<SetRanks()> sets)
    : rank_(rank),
      options_(options),
      warning_ns_(count(options.warning)),
      abort_ns_(count(options.abort)),
      table_(table),
      work_counter_(work_counter),
      sets_(std::move(sets)),
      stack_(options.stack),
      peers_(rank == 0 ? static_cast<size_t>(size) : 0),
      next_page_ns_(warning_ns_),
      next_judgement_ns_(abort_ns_),
      next_proof_ns_(kProofNs) {}

Pulse HangDetector::pulse(uint64_t now) {
  return {now, stuck_ns(now), process_cpu_ns(), table_.is_blocked()};
}

uint64_t HangDetector::stuck_ns(uint64_t now) {
  uint64_t longest = 0;
  for (const auto& [set, announced_ns] : table_.oldest_ns()) {
    const auto [found, is_new] = moves_.try_emplace(set);
    Move& move = found->second;
    const uint64_t count = work_counter_.count(set);
    if (count != move.count) move = {count, is_new ? 0 : now};
    const uint64_t since = std::max(announced_ns, move.at_ns);
    longest = std::max(longest, now > since ? now - since : 0);
  }
  return longest;
}

void HangDetector::begin_report(uint32_t round, uint64_t now) {
  reporting_ = true;
  report_round_ = round;
  report_begun_ns_ = now;
  stack_.begin();
}

std::optional<RankReport> HangDetector::finish_report(uint64_t now) {
  if (!reporting_) return std::nullopt;
  if (!stack_.complete() && now < report_begun_ns_ + kStackNs) return std::nullopt;
  reporting_ = false;
  RankReport report;
  report.round = report_round_;
  report.waiting_threads = static_cast<uint32_t>(table_.waiting_threads());
  report.stack = stack_.text();
  report.cycles = work_counter_.cycles_done();
  for (const PendingOperation& operation : table_.pending()) {
    if (report.called.size() == kMostCalled) {
      ++report.left_out;
      continue;
    }
    const Request& request = *operation.request;
    report.called.push_back({request.process_set, request.op == OpType::kJoin,
                             now - std::min(now, operation.announced_ns), request.name,
                             describe(request), operation.gpu});
  }
  // Last: if a cycle has begun in between, the pending operations do not fit the work done.
  report.blocked = table_.is_blocked() && work_counter_.cycles_begun() == report.cycles;
  return report;
}

void HangDetector::note(int rank, const Pulse& pulse, uint64_t now) {
  PeerState& peer = peers_[static_cast<size_t>(rank)];
  const uint64_t share = (now - peer.pulse_ns) / kLeastShare;
  if (peer.pulse_ns == 0 || pulse.cpu_ns - peer.cpu_ns >= share) peer.computed_ns = now;
  peer.stuck_ns = pulse.stuck_ns;
  peer.cpu_ns = pulse.cpu_ns;
  peer.blocked = pulse.blocked;
  peer.pulse_ns = now;
}

void HangDetector::note(int rank, RankReport report) {
  if (asking_ && report.round == round_) {
    peers_[static_cast<size_t>(rank)].report = std::move(report);
  }
}

void HangDetector::complete(std::vector<RankView>& views, uint64_t now) const {
  for (size_t rank = 0; rank < views.size(); ++rank) {
    const PeerState& peer = peers_[rank];
    views[rank].idle_ns = now - peer.computed_ns;
    views[rank].report = peer.report;
    views[rank].stack_moved = peer.report && !peer.last_stack.empty() &&
                              !peer.report->stack.empty() && peer.report->stack != peer.last_stack;
  }
}

void HangDetector::forget_hang() {
  next_page_ns_ = warning_ns_;
  next_judgement_ns_ = abort_ns_;
  next_proof_ns_ = kProofNs;
  asking_ = false;
  for (PeerState& peer : peers_) peer.last_stack.clear();
}

bool HangDetector::all_blocked() const { return std::ranges::all_of(peers_, &PeerState::blocked); }

HangStep HangDetector::step(uint64_t now, std::vector<RankView> liveness_views) {
  if (warning_ns_ == 0) return {};
  hang_ns_ = 0;
  for (const PeerState& peer : peers_) hang_ns_ = std::max(hang_ns_, peer.stuck_ns);
  if (hang_ns_ < std::min(warning_ns_, kProofNs)) {
    forget_hang();
    return {};
  }
  if (asking_) {
    const auto silent = [&](const PeerState& peer) {
      return !peer.report &&
             liveness_views[static_cast<size_t>(&peer - peers_.data())].liveness == Liveness::kWell;
    };
    if (std::ranges::any_of(peers_, silent) && now < asked_ns_ + kReportNs) return {};
    return decide(now, std::move(liveness_views));
  }
  const bool judge_again = abort_ns_ > 0 && hang_ns_ >= next_judgement_ns_;
  const bool prove = hang_ns_ >= next_proof_ns_ && all_blocked();
  if (hang_ns_ < next_page_ns_ && !judge_again && !prove) return {};
  asking_ = true;
  asked_ns_ = now;
  for (PeerState& peer : peers_) peer.report.reset();
  return AskAll{++round_};
}

HangStep HangDetector::decide(uint64_t now, std::vector<RankView> views) {
  asking_ = false;
  complete(views, now);
  const SetRanks sets = sets_();
  const bool deadlock = is_deadlock(views, sets);
  const std::vector<Wait> waits = explain(views, sets, deadlock ? 0 : warning_ns_);
  for (PeerState& peer : peers_) {
    if (peer.report) peer.last_stack = peer.report->stack;
  }
  if (hang_ns_ >= next_judgement_ns_) next_judgement_ns_ = hang_ns_ + kJudgeAgainNs;
  if (const Wait* wait = unrecoverable(waits, views, abort_ns_)) {
    return GiveUp{rank_at_fault(*wait), sentence(*wait),
                  options_.about + hang_page(waits, views, {.is_deadlock = deadlock})};
  }
  const bool is_news = deadlock && next_proof_ns_ != kNever;
  next_proof_ns_ = deadlock ? kNever : std::max(next_proof_ns_, 2 * hang_ns_);
  if ((hang_ns_ < next_page_ns_ && !is_news) || waits.empty()) return {};
  if (is_news) next_page_ns_ *= 2;  // the first page has come early
  while (next_page_ns_ <= hang_ns_) next_page_ns_ *= 2;
  const uint64_t left = abort_ns_ > hang_ns_ ? abort_ns_ - hang_ns_ : abort_ns_ > 0 ? 1 : 0;
  const Outlook outlook{next_page_ns_ - hang_ns_, left, deadlock};
  return TellAll{options_.about + hang_page(waits, views, outlook)};
}

}  // namespace hvdtune
