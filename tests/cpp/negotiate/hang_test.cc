#include "negotiate/hang.h"

#include <numeric>
#include <stdexcept>

#include "check.h"

using namespace hvdtune;

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

Called called(const std::string& name, uint64_t seconds = 6,
              const std::string& description = "allreduce(sum) float32 [4]") {
  return {0, false, seconds * kSecond, name, description, GpuProgress::kNone};
}

RankView waits_in(std::vector<Called> calls) {
  RankView view;
  view.report = RankReport{1, 1, "  File \"wait.py\", line 1 in wait\n", 0, std::move(calls)};
  view.idle_ns = 6 * kSecond;
  return view;
}

// In none of hvdtune's functions.
RankView elsewhere(uint64_t idle_seconds) {
  RankView view;
  view.report = RankReport{1, 0, "  File \"train.py\", line 7 in load\n", 0, {}};
  view.idle_ns = idle_seconds * kSecond;
  return view;
}

RankView silent(Liveness liveness) {
  RankView view;
  view.liveness = liveness;
  view.silent_ns = 3 * kSecond;
  return view;
}

SetRanks world(size_t size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return {{0, ranks}};
}

std::vector<Wait> explain_all(const std::vector<RankView>& ranks) {
  return explain(ranks, world(ranks.size()), 5 * kSecond);
}

// How the last rank is missing where the others wait for "allreduce.x".
MissingRank why_last_is_missing(RankView last) {
  for (const Wait& wait :
       explain_all({waits_in({called("allreduce.x")}), waits_in({called("allreduce.x")}), last})) {
    if (wait.names[0] != "allreduce.x") continue;
    CHECK(wait.callers == std::vector<int>({0, 1}));
    CHECK_EQ(wait.missing.size(), 1U);
    CHECK_EQ(wait.missing[0].rank, 2);
    return wait.missing[0];
  }
  throw std::runtime_error("x was not explained");
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  std::cerr << "no '" << part << "' in: " << text << std::endl;
  return false;
}

}  // namespace

TEST(every_kind_of_absence_is_told_from_the_others) {
  RankView moving = elsewhere(8);
  moving.stack_moved = true;
  RankView overlong = waits_in({called("other")});
  overlong.report->left_out = 3;
  struct Row {
    RankView last;
    MissingReason reason;
    const char* detail;
  };
  const std::vector<Row> table = {
      {silent(Liveness::kDead), MissingReason::kDead, "its process has ended"},
      {silent(Liveness::kUnreachable), MissingReason::kNetwork, "does not acknowledge"},
      {silent(Liveness::kFrozen), MissingReason::kFrozen, "it has been silent for 3.0 s"},
      {silent(Liveness::kWell), MissingReason::kUnknown, "sent no report"},
      {overlong, MissingReason::kUnknown, "sent no report"},
      {elsewhere(0), MissingReason::kBusy, "used the CPU"},
      {moving, MissingReason::kBusy, "its Python stack keeps changing"},
      {elsewhere(8), MissingReason::kNeverCalled, "has used no CPU for 8.0 s"},
      {waits_in({called("allreduce.y")}), MissingReason::kDifferentOrder,
       "\"allreduce.y\", which ranks 0, 1 have not called"},
      {waits_in({called("allgather.x", 6, "allgather float32 [4]")}), MissingReason::kMismatch,
       "allgather float32 [4] under this name (\"allgather.x\")"},
  };
  for (const Row& row : table) {
    const MissingRank missing = why_last_is_missing(row.last);
    CHECK_EQ(name_of(missing.reason), name_of(row.reason));
    CHECK(contains(missing.detail, row.detail));
  }
}

TEST(callers_that_differ_in_shape_are_told_before_the_last_has_called) {
  const std::vector<Wait> waits =
      explain_all({waits_in({called("x")}),
                   waits_in({called("x", 6, "allreduce(sum) float32 [5]")}), elsewhere(0)});
  CHECK_EQ(waits[0].disagreement,
           "mismatch: rank 0 called allreduce(sum) float32 [4], rank 1 called "
           "allreduce(sum) float32 [5]");
}

TEST(who_waits_for_a_busy_rank_in_another_set_is_not_out_of_order) {
  Called in_pair = called("pair");
  in_pair.process_set = 1;
  const std::vector<RankView> ranks = {waits_in({called("x")}), waits_in({in_pair}), elsewhere(0)};
  const SetRanks sets = {{0, {0, 1, 2}}, {1, {1, 2}}};
  const std::vector<Wait> waits = explain(ranks, sets, 5 * kSecond);
  CHECK_EQ(waits.size(), 2U);
  CHECK_EQ(waits[0].missing.size(), 2U);
  CHECK_EQ(name_of(waits[0].missing[0].reason), "waits for others");
  CHECK_EQ(waits[0].missing[0].rank, 1);
  CHECK_EQ(name_of(waits[0].missing[1].reason), "still computing");
  CHECK(unrecoverable(waits, ranks, kSecond) == nullptr);
}

TEST(a_cycle_over_three_ranks_is_a_different_order) {
  std::vector<RankView> ranks;
  for (const char* name : {"a", "b", "c"}) ranks.push_back(waits_in({called(name)}));
  for (const Wait& wait : explain_all(ranks)) {
    CHECK_EQ(wait.missing.size(), 2U);
    CHECK_EQ(name_of(wait.missing[0].reason), "called in a different order or with other tensors");
    CHECK_EQ(name_of(wait.missing[1].reason), "called in a different order or with other tensors");
  }
}

TEST(a_joined_rank_is_missing_nowhere_in_its_set) {
  Called join = called("join", 60, "join");
  join.joins = true;
  const std::vector<RankView> ranks = {waits_in({join}), waits_in({called("x")}), elsewhere(0)};
  const std::vector<Wait> waits = explain_all(ranks);
  CHECK_EQ(waits.size(), 2U);
  CHECK_EQ(waits[0].names[0], "join");
  CHECK_EQ(waits[1].names[0], "x");
  CHECK_EQ(waits[1].missing.size(), 1U);
  CHECK_EQ(waits[1].missing[0].rank, 2);
}

TEST(tensors_that_wait_for_the_same_ranks_are_told_once) {
  std::vector<Called> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(called("t" + std::to_string(i), 60 - i));
  const std::vector<RankView> ranks = {waits_in(calls), waits_in(calls), elsewhere(9)};
  const std::vector<Wait> waits = explain_all(ranks);
  CHECK_EQ(waits.size(), 1U);
  CHECK_EQ(waits[0].names.size(), 40U);
  CHECK_EQ(waits[0].age_ns, 60 * kSecond);
  const std::string page = hang_page(waits, ranks, {5 * kSecond, 600 * kSecond});
  CHECK(contains(page, "\"t0\" allreduce(sum) float32 [4], \"t1\" and 38 more"));
  CHECK(contains(page, "called 60 s ago by ranks 0, 1, waits for"));
  CHECK(contains(page, "rank 2: never called"));
  CHECK(contains(page, "rank 2's main thread, most recent call first:\n  File \"train.py\""));
  CHECK(page.find("wait.py") == std::string::npos);
}

TEST(young_operations_are_no_news) {
  const std::vector<RankView> ranks = {waits_in({called("x", 2)}), elsewhere(0)};
  CHECK(explain_all(ranks).empty());
}

TEST(an_operation_that_all_have_called_is_stuck_in_the_network) {
  const std::vector<RankView> ranks = {waits_in({called("x")}), waits_in({called("x")})};
  const std::vector<Wait> waits = explain_all(ranks);
  CHECK(waits[0].missing.empty());
  CHECK_EQ(rank_at_fault(waits[0]), -1);
  CHECK(contains(hang_page(waits, ranks, {1, 0}), "no data moves"));
  CHECK(unrecoverable(waits, ranks, 6 * kSecond) == waits.data());
}

Called on_gpu(const std::string& name, GpuProgress progress, uint64_t seconds = 6) {
  Called call = called(name, seconds);
  call.gpu = progress;
  return call;
}

TEST(an_operation_on_gpus_that_does_not_end_names_those_who_are_not_done_with_it) {
  const std::vector<RankView> ranks = {waits_in({on_gpu("x", GpuProgress::kRuns)}),
                                       waits_in({called("x", 1)}),
                                       waits_in({on_gpu("x", GpuProgress::kQueued)})};
  const std::vector<Wait> waits = explain_all(ranks);
  CHECK_EQ(waits.size(), 1U);
  CHECK(waits[0].callers == std::vector<int>({0, 2}));
  CHECK(waits[0].missing.empty());
  CHECK(contains(hang_page(waits, ranks, {1, 0}),
                 "called 6.0 s ago by ranks 0, 2, but does not finish on their GPUs: a GPU "
                 "does other work, or the network moves no data"));
  CHECK_EQ(sentence(waits[0]), "tensor \"x\" waited 6.0 s to finish on the GPUs of ranks 0, 2");
  CHECK(unrecoverable(waits, ranks, 6 * kSecond) == waits.data());
}

TEST(an_operation_on_gpus_waits_for_the_rank_whose_gpu_has_not_made_its_tensor) {
  const std::vector<RankView> ranks = {
      waits_in({on_gpu("x", GpuProgress::kRuns)}),
      waits_in({on_gpu("x", GpuProgress::kWaits), called("y")}),
      waits_in({on_gpu("x", GpuProgress::kRuns)}),
  };
  const std::vector<Wait> waits = explain_all(ranks);
  CHECK(contains(hang_page(waits, ranks, {1, 0}),
                 "rank 1: still computing; its GPU is still computing the tensor"));
  CHECK_EQ(rank_at_fault(waits[0]), 1);
  CHECK(unrecoverable(waits, ranks, 6 * kSecond) == nullptr);
}

// The first rank is done with "x" and calls "y"; the second one's GPU is slow.
TEST(an_operation_that_is_on_a_gpu_disproves_a_deadlock) {
  std::vector<RankView> ranks = {waits_in({called("y")}),
                                 waits_in({on_gpu("x", GpuProgress::kRuns)})};
  for (RankView& view : ranks) view.report->blocked = true;
  CHECK(!is_deadlock(ranks, world(2)));
  for (const Wait& wait : explain_all(ranks)) {
    if (wait.names[0] != "y") continue;
    CHECK(wait.missing[0].reason == MissingReason::kBlocked);
    CHECK_EQ(wait.missing[0].detail, "it waits for \"x\", which runs on the GPUs");
  }
  ranks[1] = waits_in({called("x")});
  ranks[1].report->blocked = true;
  CHECK(is_deadlock(ranks, world(2)));
}

TEST(a_job_is_given_up_only_when_nobody_who_computes_can_end_the_wait) {
  struct Row {
    RankView last;
    bool given_up;
  };
  RankView moving = elsewhere(700);
  moving.stack_moved = true;
  RankView mute = silent(Liveness::kWell);
  mute.idle_ns = 599 * kSecond;
  RankView idle_and_mute = silent(Liveness::kWell);
  idle_and_mute.idle_ns = 600 * kSecond;
  const std::vector<Row> table = {
      {elsewhere(0), false},    // validates
      {moving, false},          // computes somewhere else than in its process
      {elsewhere(599), false},  // computed until a moment ago
      {elsewhere(600), true},   // sleeps in a lock
      {mute, false},            // computed until a moment ago and does not report
      {idle_and_mute, true},    // nor reports
      {waits_in({called("y", 700)}), true},
  };
  for (const Row& row : table) {
    const std::vector<RankView> ranks = {waits_in({called("x", 601)}), row.last};
    const std::vector<Wait> waits = explain_all(ranks);
    const Wait* given_up = unrecoverable(waits, ranks, 600 * kSecond);
    CHECK_EQ(given_up != nullptr, row.given_up);
    CHECK(unrecoverable(waits, ranks, 0) == nullptr);
    CHECK(unrecoverable(waits, ranks, 1000 * kSecond) == nullptr);
  }
}

TEST(a_deadlock_is_proved_only_by_ranks_that_can_call_nothing_and_have_nothing_to_carry_out) {
  const auto blocked_in = [](const std::string& name) {
    RankView view = waits_in({called(name, 1)});
    view.report->blocked = true;
    view.report->cycles = 7;
    return view;
  };
  RankView free = blocked_in("y");
  free.report->blocked = false;
  RankView behind = blocked_in("y");
  behind.report->cycles = 6;
  RankView overlong = blocked_in("y");
  overlong.report->left_out = 1;
  RankView unheard = blocked_in("y");
  unheard.liveness = Liveness::kFrozen;
  RankView joined = blocked_in("join");
  joined.report->called[0].joins = true;
  struct Row {
    RankView last;
    bool is_deadlock;
  };
  const std::vector<Row> table = {
      {blocked_in("y"), true},
      {blocked_in("x"), false},  // all have called it: it will be carried out
      {joined, false},           // takes part in whatever the others call
      {free, false},             // another of its threads may call
      {behind, false},           // completes something yet that the others have completed
      {overlong, false},
      {unheard, false},
      {elsewhere(9), false},
      {silent(Liveness::kWell), false},
  };
  for (const Row& row : table) {
    const std::vector<RankView> ranks = {blocked_in("x"), row.last};
    CHECK_EQ(is_deadlock(ranks, world(2)), row.is_deadlock);
  }
  const std::vector<RankView> ranks = {blocked_in("x"), blocked_in("y")};
  const std::vector<Wait> waits = explain(ranks, world(2), 0);
  CHECK(contains(hang_page(waits, ranks, {10 * kSecond, 600 * kSecond, true}),
                 "no progress for 1.0 s, and none is possible: every rank waits"));
}

TEST(the_page_names_the_likely_cause_of_calls_in_another_order_only) {
  const Outlook outlook{10 * kSecond, 600 * kSecond, false};
  const std::vector<RankView> others = {waits_in({called("gradient")}), waits_in({called("loss")})};
  CHECK(contains(hang_page(explain_all(others), others, outlook),
                 "  likely cause: a rank has fewer batches than the others, or only some ranks"));
  const std::vector<RankView> late = {waits_in({called("gradient")}), elsewhere(0)};
  const std::string page = hang_page(explain_all(late), late, outlook);
  CHECK(page.find("likely cause") == std::string::npos);
}

TEST(the_sentence_names_the_plainest_cause_first) {
  const std::vector<RankView> ranks = {waits_in({called("x")}), elsewhere(0), elsewhere(9)};
  const std::vector<Wait> waits = explain_all(ranks);
  CHECK_EQ(rank_at_fault(waits[0]), 2);
  CHECK_EQ(sentence(waits[0]),
           "tensor \"x\" waited 6.0 s for rank 2: never called; it waits outside of hvdtune and "
           "has used no CPU for 9.0 s (and for 1 more)");
}
