#include "negotiate/negotiator.h"

#include "check.h"
#include "negotiate/response_cache.h"

using namespace hvdtune;

namespace {

Request tensor(const std::string& name, std::vector<int64_t> shape = {4}) {
  Request request;
  request.name = name;
  request.tensors = {{DType::kFloat32, std::move(shape)}};
  return request;
}

// A star: every rank announces to the root itself.
class Star {
 public:
  Star(int size, size_t capacity, uint32_t cache_ids = kNoCacheId)
      : sets_(size), negotiator_(sets_, leaves(size), capacity, cache_ids) {}

  void announce(int rank, Announce announce, uint64_t now_ns) {
    for (Claim& claim : announce.requests) claim.ranks = {rank};
    negotiator_.announce(static_cast<size_t>(rank), announce, now_ns);
  }
  bool has_ready() const { return negotiator_.has_ready(); }
  bool has_pending() const { return negotiator_.has_pending(); }
  size_t ready_bytes() const { return negotiator_.ready_bytes(); }
  bool everybody_waits() const { return negotiator_.everybody_waits(); }
  Ready take_ready(bool cache_enabled, uint64_t cycle) {
    return negotiator_.take_ready(cache_enabled, cycle);
  }
  ProcessSets& sets() { return sets_; }
  Negotiator& negotiator() { return negotiator_; }

 private:
  static std::vector<std::vector<int>> leaves(int size) {
    std::vector<std::vector<int>> list;
    for (int rank = 0; rank < size; ++rank) list.push_back({rank});
    return list;
  }
  ProcessSets sets_;
  Negotiator negotiator_;
};

Announce full(const std::vector<Request>& requests, uint64_t cycles_seen = 0) {
  Announce announce;
  for (const Request& request : requests) announce.requests.push_back({request, {}});
  announce.cycles_seen = cycles_seen;
  return announce;
}

Announce cached(std::vector<uint32_t> ids, uint64_t cycles_seen) {
  Announce announce;
  announce.cached = std::move(ids);
  announce.cycles_seen = cycles_seen;
  return announce;
}

// The only response of the cycle.
Response answer(Star& negotiator, uint64_t cycle, bool cache_enabled = true) {
  Ready ready = negotiator.take_ready(cache_enabled, cycle);
  CHECK_EQ(ready.responses.size(), 1U);
  return ready.responses[0];
}

// Both of two ranks announce `request` in full.
Response agree_on(Star& negotiator, const Request& request, uint64_t cycle) {
  negotiator.announce(0, full({request}, cycle - 1), 10);
  negotiator.announce(1, full({request}, cycle - 1), 20);
  return answer(negotiator, cycle);
}

}  // namespace

TEST(a_tensor_is_ready_when_the_last_rank_has_announced_it) {
  Star negotiator(3, 16);
  negotiator.announce(0, full({tensor("a"), tensor("b")}), 100);
  negotiator.announce(2, full({tensor("b"), tensor("a")}), 150);
  CHECK(!negotiator.has_ready());
  CHECK(negotiator.has_pending());
  negotiator.announce(1, full({tensor("b")}), 170);
  negotiator.announce(1, full({tensor("a")}), 400);
  CHECK_EQ(negotiator.ready_bytes(), 32U);
  const Ready ready = negotiator.take_ready(true, 1);
  CHECK_EQ(ready.responses.size(), 2U);
  CHECK_EQ(ready.responses[0].request.name, "b");
  CHECK_EQ(ready.responses[1].request.name, "a");
  CHECK(!negotiator.has_ready());
  CHECK(!negotiator.has_pending());
  CHECK_EQ(negotiator.ready_bytes(), 0U);
}

TEST(everybody_waits_follows_each_ranks_last_word) {
  Star negotiator(2, 16);
  Announce announce;
  announce.waiting = true;
  negotiator.announce(0, announce, 1);
  CHECK(!negotiator.everybody_waits());
  negotiator.announce(1, announce, 2);
  CHECK(negotiator.everybody_waits());
  negotiator.announce(0, Announce{}, 3);
  CHECK(!negotiator.everybody_waits());
}

TEST(a_mismatch_names_ranks_and_what_each_announced) {
  Star negotiator(3, 16);
  Request other = tensor("t", {5});
  other.tensors[0].dtype = DType::kFloat16;
  negotiator.announce(0, full({tensor("t")}), 1);
  negotiator.announce(1, full({tensor("t")}), 1);
  negotiator.announce(2, full({other}), 1);
  const Response response = answer(negotiator, 1);
  CHECK(response.error.find("tensor \"t\" differs") != std::string::npos);
  CHECK(contains(response.error, "ranks 0, 1 announced allreduce(sum) float32 [4]"));
  CHECK(contains(response.error, "rank 2 announced allreduce(sum) float16 [5]"));
  CHECK_EQ(response.cache_id, kNoCacheId);
}

TEST(any_difference_is_a_mismatch) {
  std::vector<Request> others(6, tensor("t"));
  others[0].op = OpType::kBroadcast;
  others[1].reduce_op = ReduceOp::kMax;
  others[2].root = 1;
  others[3].prescale = 2;
  others[4].postscale = 2;
  others[5].tensors[0].shape = {2, 2};
  for (const Request& other : others) {
    Star negotiator(2, 16);
    negotiator.announce(0, full({tensor("t")}), 1);
    negotiator.announce(1, full({other}), 1);
    CHECK(!answer(negotiator, 1).error.empty());
  }
}

TEST(an_allgather_may_differ_in_its_first_dimension_only) {
  for (const int64_t columns : {3, 4}) {
    Star negotiator(2, 16);
    Request mine = tensor("g", {7, 3});
    Request theirs = tensor("g", {0, columns});
    mine.op = theirs.op = OpType::kAllgather;
    negotiator.announce(0, full({mine}), 1);
    negotiator.announce(1, full({theirs}), 1);
    const Response response = answer(negotiator, 1);
    CHECK_EQ(response.error.empty(), columns == 3);
    if (columns == 3) CHECK(response.first_dims == std::vector<int64_t>({7, 0}));
  }
}

TEST(a_known_tensor_is_answered_by_its_number) {
  Star negotiator(2, 16);
  const Response first = agree_on(negotiator, tensor("t"), 1);
  CHECK(!first.compact);
  CHECK(first.cache_id != kNoCacheId);
  negotiator.announce(0, cached({first.cache_id}, 1), 30);
  negotiator.announce(1, cached({first.cache_id}, 1), 40);
  const Response second = answer(negotiator, 2);
  CHECK(second.compact);
  CHECK_EQ(second.cache_id, first.cache_id);
  CHECK_EQ(second.request.name, "t");
}

TEST(more_rows_than_can_be_counted_are_refused) {
  constexpr int64_t kMany = int64_t{1} << 62;
  for (const OpType op : {OpType::kAllgather, OpType::kAlltoall}) {
    Star negotiator(2, 16);
    Request request = tensor("g", {kMany, 0});
    request.op = op;
    if (op == OpType::kAlltoall) request.splits = {0, kMany};
    negotiator.announce(0, full({request}), 1);
    negotiator.announce(1, full({request}), 1);
    const Response response = answer(negotiator, 1);
    CHECK(contains(response.error, "more rows than int64 can count"));
    CHECK_EQ(response.cache_id, kNoCacheId);
  }
}

TEST(a_changed_shape_gets_a_new_number) {
  Star negotiator(2, 16);
  const Response first = agree_on(negotiator, tensor("t"), 1);
  negotiator.announce(0, full({tensor("t", {9})}, 1), 30);
  negotiator.announce(1, full({tensor("t", {9})}, 1), 40);
  const Ready ready = negotiator.take_ready(true, 2);
  CHECK(!ready.responses[0].compact);
  CHECK(ready.responses[0].cache_id != first.cache_id);
  CHECK(ready.evicted == std::vector<uint32_t>({first.cache_id}));
}

TEST(a_shape_that_changed_on_one_rank_only_is_a_mismatch) {
  Star negotiator(2, 16);
  const Response first = agree_on(negotiator, tensor("t"), 1);
  negotiator.announce(0, cached({first.cache_id}, 1), 30);
  negotiator.announce(1, full({tensor("t", {9})}, 1), 40);
  CHECK(contains(answer(negotiator, 2).error, "rank 1 announced allreduce(sum) float32 [9]"));
}

TEST(the_least_recently_used_entry_goes) {
  Star negotiator(2, 2);
  const uint32_t a = agree_on(negotiator, tensor("a"), 1).cache_id;
  const uint32_t b = agree_on(negotiator, tensor("b"), 2).cache_id;
  negotiator.announce(0, cached({a}, 2), 1);
  negotiator.announce(1, cached({a}, 2), 1);
  CHECK(answer(negotiator, 3).compact);
  negotiator.announce(0, full({tensor("c")}, 3), 1);
  negotiator.announce(1, full({tensor("c")}, 3), 1);
  CHECK(negotiator.take_ready(true, 4).evicted == std::vector<uint32_t>({b}));
}

TEST(an_entry_announced_by_one_rank_may_be_evicted_before_the_other_comes) {
  Star negotiator(2, 1);
  const uint32_t a = agree_on(negotiator, tensor("a"), 1).cache_id;
  negotiator.announce(0, cached({a}, 1), 1);
  agree_on(negotiator, tensor("b"), 2);
  // Rank 1 announced it before it heard of the eviction.
  negotiator.announce(1, cached({a}, 1), 1);
  const Response late = answer(negotiator, 3);
  CHECK(!late.compact);
  CHECK(late.error.empty());
  CHECK_EQ(late.request.name, "a");
  CHECK(late.cache_id != a);
}

TEST(an_entry_announced_by_one_rank_is_understood_long_after_its_eviction) {
  Star negotiator(2, 1);
  const uint32_t a = agree_on(negotiator, tensor("a"), 1).cache_id;
  negotiator.announce(0, cached({a}, 1), 1);
  for (uint64_t cycle = 2; cycle < 6; ++cycle) {
    agree_on(negotiator, tensor("b" + std::to_string(cycle)), cycle);
  }
  negotiator.announce(1, full({tensor("a")}, 5), 1);
  CHECK(answer(negotiator, 6).error.empty());
  // Both ranks have seen the eviction and no announcement of it is open: it is forgotten.
  negotiator.announce(0, full({}, 6), 1);
  negotiator.announce(1, full({}, 6), 1);
  CHECK_THROWS(ErrorCode::kInternal, negotiator.announce(1, cached({a}, 6), 1));
}

TEST(an_entry_stays_for_the_cycle_that_answers_by_it) {
  Star negotiator(2, 1);
  const uint32_t a = agree_on(negotiator, tensor("a"), 1).cache_id;
  for (const int rank : {0, 1}) {
    Announce announce = cached({a}, 1);
    announce.requests = {{tensor("b"), {}}, {tensor("c"), {}}};
    negotiator.announce(rank, announce, 1);
  }
  const Ready ready = negotiator.take_ready(true, 2);
  CHECK_EQ(ready.responses.size(), 3U);
  CHECK(ready.responses[0].compact);
  CHECK_EQ(ready.responses[0].cache_id, a);
  CHECK_EQ(ready.responses[1].cache_id, kNoCacheId);
  CHECK_EQ(ready.responses[2].cache_id, kNoCacheId);
  CHECK(ready.evicted.empty());
}

// Or a cycle of many names would cost the square of their number, and leave nothing to be found.
TEST(of_more_new_names_than_fit_the_first_are_remembered) {
  constexpr size_t kCapacity = 3;
  Star negotiator(2, kCapacity);
  agree_on(negotiator, tensor("old"), 1);
  std::vector<Request> names;
  for (int i = 0; i < 20; ++i) names.push_back(tensor("t" + std::to_string(i)));
  for (const int rank : {0, 1}) negotiator.announce(rank, full(names, 1), 1);
  const Ready first = negotiator.take_ready(true, 2);
  CHECK_EQ(first.evicted.size(), 1U);
  Announce again;
  again.cycles_seen = 2;
  for (size_t i = 0; i < names.size(); ++i) {
    const uint32_t id = first.responses[i].cache_id;
    CHECK_EQ(id != kNoCacheId, i < kCapacity);
    if (id == kNoCacheId) {
      again.requests.push_back({names[i], {}});
    } else {
      again.cached.push_back(id);
    }
  }
  for (const int rank : {0, 1}) negotiator.announce(rank, again, 2);
  const Ready second = negotiator.take_ready(true, 3);
  CHECK_EQ(second.responses.size(), names.size());
  CHECK_EQ(std::ranges::count(second.responses, true, &Response::compact), 3);
  CHECK(second.evicted.empty());
}

TEST(when_the_numbers_are_used_up_nothing_new_is_remembered) {
  Star negotiator(2, 16, 2);
  const uint32_t a = agree_on(negotiator, tensor("a"), 1).cache_id;
  const uint32_t b = agree_on(negotiator, tensor("b"), 2).cache_id;
  CHECK(a != b && a != kNoCacheId && b != kNoCacheId);
  CHECK_EQ(agree_on(negotiator, tensor("c"), 3).cache_id, kNoCacheId);
  // Its shape has changed: nobody may find what it was.
  negotiator.announce(0, full({tensor("a", {9})}, 3), 1);
  negotiator.announce(1, full({tensor("a", {9})}, 3), 1);
  const Ready changed = negotiator.take_ready(true, 4);
  CHECK_EQ(changed.responses[0].cache_id, kNoCacheId);
  CHECK(changed.evicted == std::vector<uint32_t>({a}));
  for (const int rank : {0, 1}) negotiator.announce(rank, cached({b}, 4), 1);
  CHECK(answer(negotiator, 5).compact);
}

TEST(without_a_cache_nothing_gets_a_number) {
  Star none(2, 0);
  CHECK_EQ(agree_on(none, tensor("t"), 1).cache_id, kNoCacheId);
  Star off(2, 16);
  off.announce(0, full({tensor("t")}), 1);
  off.announce(1, full({tensor("t")}), 1);
  CHECK_EQ(answer(off, 1, false).cache_id, kNoCacheId);
}

TEST(a_cache_turned_on_again_still_holds_what_it_held) {
  Star negotiator(2, 16);
  const uint32_t id = agree_on(negotiator, tensor("t"), 1).cache_id;
  negotiator.announce(0, full({tensor("t")}, 1), 1);
  negotiator.announce(1, full({tensor("t")}, 1), 1);
  CHECK(!answer(negotiator, 2, false).compact);
  negotiator.announce(0, cached({id}, 2), 1);
  negotiator.announce(1, cached({id}, 2), 1);
  CHECK(answer(negotiator, 3).compact);
}

TEST(a_name_announced_twice_by_one_rank_is_an_error) {
  Star negotiator(2, 16);
  negotiator.announce(0, full({tensor("t")}), 1);
  CHECK_THROWS(ErrorCode::kInternal, negotiator.announce(0, full({tensor("t")}), 2));
  Star other(2, 16);
  const uint32_t id = agree_on(other, tensor("t"), 1).cache_id;
  other.announce(1, cached({id}, 1), 1);
  CHECK_THROWS(ErrorCode::kInternal, other.announce(1, full({tensor("t")}, 1), 2));
}

TEST(an_unknown_number_is_an_error) {
  Star negotiator(2, 16);
  CHECK_THROWS(ErrorCode::kInternal, negotiator.announce(1, cached({0}, 0), 1));
}

TEST(a_rank_finds_only_exactly_what_it_announced_before) {
  ResponseCache cache;
  Response response;
  response.request = tensor("t");
  response.first_dims = {4, 5};
  response.cache_id = 8;
  const Request own = tensor("t");
  cache.remember(&own, response);
  CHECK(cache.find(tensor("t")) == 8U);
  CHECK(!cache.find(tensor("t", {5})));
  CHECK(!cache.find(tensor("u")));
  Response compact;
  compact.cache_id = 8;
  cache.complete(compact);
  CHECK(compact.first_dims == response.first_dims);
  response.cache_id = 9;
  cache.remember(&own, response);
  cache.forget(8, 5);
  cache.forget(8, 5);
  CHECK_EQ(cache.request_of(8)->name, "t");
  cache.drop_forgotten(4);
  CHECK(cache.request_of(8) != nullptr);
  cache.drop_forgotten(5);
  CHECK(cache.request_of(8) == nullptr);
  CHECK(cache.find(tensor("t")) == 9U);
  compact.cache_id = 8;
  CHECK_THROWS(ErrorCode::kInternal, cache.complete(compact));
}

TEST(what_a_rank_announced_before_it_joined_is_waited_for_when_it_arrives_later) {
  const ProcessSets sets(3);
  Negotiator negotiator(sets, {{0}, {1, 2}}, 16);
  Request join;
  join.op = OpType::kJoin;
  join.name = "join.noname";
  const auto told = [&](size_t branch, std::vector<Claim> claims) {
    Announce announce;
    announce.requests = std::move(claims);
    negotiator.announce(branch, announce, 10);
  };
  Request rows = tensor("allgather.t", {2});
  rows.op = OpType::kAllgather;
  Request more = rows;
  more.tensors[0].shape = {3};
  told(0, {{join, {0}}});
  told(1, {{join, {1}}});
  // Rank 1 announced before it joined, but whoever passes it on waited for rank 2.
  told(1, {{more, {2}}, {rows, {1}}, {join, {2}}});
  const std::vector<Response> responses = negotiator.take_ready(true, 1).responses;
  CHECK_EQ(responses.size(), 2U);
  CHECK(responses[0].first_dims == (std::vector<int64_t>{0, 2, 3}));
  CHECK_EQ(name_of(responses[1].request.op), name_of(OpType::kJoin));
}

TEST(horovod_s_rule_refuses_rows_and_roots_after_a_join_and_allows_reductions) {
  for (const AfterJoin rule : {AfterJoin::kPossible, AfterJoin::kAllreduce}) {
    const ProcessSets sets(3);
    Negotiator negotiator(sets, {{0}, {1}, {2}}, 16, kNoCacheId, rule);
    const auto answer = [&](OpType op, std::vector<int> ranks) {
      Request request = tensor(std::string(name_of(op)) + ".t");
      request.op = op;
      for (const int rank : ranks) {
        Announce announce;
        announce.requests = {{request, {rank}}};
        negotiator.announce(static_cast<size_t>(rank), announce, 10);
      }
      return negotiator.take_ready(true, 1).responses;
    };
    answer(OpType::kJoin, {2});
    CHECK_EQ(answer(OpType::kAllreduce, {0, 1})[0].error, "");
    CHECK_EQ(answer(OpType::kBarrier, {0, 1})[0].error, "");
    for (const OpType op : {OpType::kAllgather, OpType::kBroadcast}) {
      const std::string error = answer(op, {0, 1})[0].error;
      CHECK_EQ(error.empty(), rule == AfterJoin::kPossible);
      CHECK(error.empty() ||
            error.ends_with(" float32 [4] is not allowed after the join of rank 2, as "
                            "in Horovod; unset HVDTUNE_JOIN to allow it"));
    }
    // It needs what rank 2 does not have, by either rule.
    CHECK(answer(OpType::kReducescatter, {0, 1})[0].error.ends_with("which joined before"));
    CHECK_EQ(answer(OpType::kJoin, {0, 1})[0].error, "");
    negotiator.pending_requests().end_join(kWorldSet);  // as its answer asks for
    CHECK_EQ(answer(OpType::kAllgather, {0, 1, 2})[0].error, "");
  }
}
