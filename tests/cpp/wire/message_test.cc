#include "wire/message.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "check.h"
#include "wire/codec.h"
#include "wire/samples.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// Every shorter message, and one byte more, is refused as malformed.
template <typename Decode>
void check_lengths(std::vector<uint8_t> bytes, Decode decode) {
  decode(Bytes(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK_THROWS(ErrorCode::kInternal, decode(Bytes(bytes).first(size)));
  }
  bytes.push_back(0);
  CHECK_THROWS(ErrorCode::kInternal, decode(Bytes(bytes)));
}

// The message with one of its u32 counts made huge.
std::vector<uint8_t> with_count(std::vector<uint8_t> bytes, size_t at, uint32_t count) {
  std::memcpy(bytes.data() + at, &count, sizeof count);
  return bytes;
}

bool same(const Response& a, const Response& b) {
  return a.request == b.request && a.first_dims == b.first_dims && a.error == b.error &&
         a.cache_id == b.cache_id && a.compact == b.compact;
}

}  // namespace

TEST(an_announcement_survives_the_wire) {
  const Announce sent = sample_announce();
  const Announce got = decode_announce(encode(sent));
  CHECK_EQ(got.adopted_version, sent.adopted_version);
  CHECK_EQ(got.cycles_seen, sent.cycles_seen);
  CHECK_EQ(got.cycles_applied, sent.cycles_applied);
  CHECK(got.waiting);
  CHECK(got.leaving == sent.leaving);
  CHECK(got.cached == sent.cached);
  CHECK_EQ(got.partly.size(), 1U);
  CHECK_EQ(got.partly[0].id, 7U);
  CHECK(got.partly[0].ranks == std::vector<int32_t>({0, 3}));
  CHECK_EQ(got.requests.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(got.requests[i].request == sent.requests[i].request);
    CHECK(got.requests[i].ranks == sent.requests[i].ranks);
  }
  CHECK_EQ(got.steps.size(), 2U);
  CHECK_EQ(got.steps[1].rank, 2);
  CHECK_EQ(got.steps[1].duration_ns, sent.steps[1].duration_ns);
  CHECK_EQ(got.holds.size(), 1U);
  CHECK_EQ(got.holds[0].rank, 2);
  CHECK_EQ(got.holds[0].version, 5U);
  CHECK_EQ(got.holds[0].passed, 40U);
}

TEST(a_cycle_survives_the_wire) {
  const Cycle sent = sample_cycle();
  const Cycle got = decode_cycle(encode(sent));
  CHECK_EQ(got.number, sent.number);
  CHECK_EQ(got.setting_version, sent.setting_version);
  CHECK(got.setting == sent.setting);
  CHECK_EQ(got.prepares, sent.prepares);
  CHECK_EQ(got.switch_at, sent.switch_at);
  CHECK_EQ(got.responses.size(), sent.responses.size());
  for (size_t i = 0; i < sent.responses.size(); ++i) {
    Response expected = sent.responses[i];
    if (expected.compact) expected.request = {};
    CHECK(same(got.responses[i], expected));
  }
  CHECK_EQ(got.buckets[0].tensors, 2U);
  CHECK(got.buckets[1].reason == CutReason::kAlone);
  CHECK(got.evicted == sent.evicted);
  CHECK(got.departed == sent.departed);
  CHECK(got.timeline == sent.timeline);
}

TEST(messages_to_and_from_the_launcher_survive_the_wire) {
  const StepReport report = decode_step_report(encode(StepReport{5, -1, 77, {1, 2, 3}}));
  CHECK_EQ(report.step, 5U);
  CHECK_EQ(report.version, -1);
  CHECK_EQ(report.end_ns, 77U);
  CHECK(report.durations_ns == std::vector<uint64_t>({1, 2, 3}));
  const Notice notice = decode_notice(encode(Notice{-3, "text"}));
  CHECK_EQ(notice.subject, -3);
  CHECK_EQ(notice.text, "text");
  Setting setting;
  setting.cycle_time_ms = 0.1;
  setting.script = {{"script.fused", "true"}, {"script.way", "\"a\""}};
  const Proposal proposal = decode_proposal(encode(Proposal{9, setting}));
  CHECK_EQ(proposal.version, 9U);
  CHECK(proposal.setting == setting);
  const TimelineOrder order = sample_timeline_order();
  CHECK(decode_timeline_order(encode(order)) == order);
}

TEST(a_message_of_the_wrong_length_is_refused) {
  check_lengths(encode(sample_announce()), [](Bytes bytes) { decode_announce(bytes); });
  check_lengths(encode(sample_cycle()), [](Bytes bytes) { decode_cycle(bytes); });
  check_lengths(encode(Notice{1, "why"}), [](Bytes bytes) { decode_notice(bytes); });
  check_lengths(encode(StepReport{5, -1, 77, {1, 2, 3}}),
                [](Bytes bytes) { decode_step_report(bytes); });
  check_lengths(encode(Proposal{}), [](Bytes bytes) { decode_proposal(bytes); });
  check_lengths(encode(sample_timeline_order()), [](Bytes bytes) { decode_timeline_order(bytes); });
}

TEST(a_count_that_cannot_follow_is_refused_before_memory_is_taken) {
  const std::vector<uint8_t> announce = encode(Announce{});
  for (const size_t at :
       {21, 26, 30, 34, 38, 42}) {  // leaving, cached, partly, requests, steps, holds
    for (const uint32_t count : {1U, 0x7fffffffU, 0xffffffffU}) {
      CHECK_THROWS(ErrorCode::kInternal, decode_announce(with_count(announce, at, count)));
    }
  }
  const std::vector<uint8_t> cycle = encode(Cycle{});
  for (const size_t at : {25, 29, 33, 37}) {  // responses, buckets, evicted, departed
    CHECK_THROWS(ErrorCode::kInternal, decode_cycle(with_count(cycle, at, 0xffffffff)));
  }
}

TEST(enumerators_out_of_range_are_refused) {
  Announce announce;
  announce.requests = {{sample_request("t"), {0}}};
  const std::vector<uint8_t> good = encode(announce);
  for (const size_t at : {38, 39, 73}) {  // op, reduce_op, the first dtype
    std::vector<uint8_t> bad = good;
    bad[at] = 200;
    CHECK_THROWS(ErrorCode::kInternal, decode_announce(bad));
  }
}

// The loops of reductions have no entry for them.
TEST(a_reduction_of_a_type_that_is_only_moved_is_refused) {
  Announce announce;
  announce.requests = {{sample_request("t"), {0}}};
  Request& request = announce.requests[0].request;
  request.tensors = {{DType::kFloat8E5m2, {5}}};
  for (const OpType op : {OpType::kAllreduce, OpType::kReducescatter}) {
    request.op = op;
    CHECK_THROWS(ErrorCode::kInternal, decode_announce(encode(announce)));
  }
  request.op = OpType::kAllgather;
  decode_announce(encode(announce));
}

// Encoding would take the last for the largest.
TEST(cache_numbers_out_of_order_are_refused) {
  std::vector<uint8_t> bytes = encode(sample_announce());
  const std::vector<uint8_t> pair = {2, 0, 0, 0, 1, 0, 0, 0, 0x70, 0x11, 1, 0};
  const auto list = std::ranges::search(bytes, pair);
  CHECK_EQ(list.size(), pair.size());
  list[8] = 1;
  list[9] = list[10] = 0;
  CHECK_THROWS(ErrorCode::kInternal, decode_announce(bytes));
}

TEST(shapes_that_no_memory_could_hold_are_refused) {
  const std::vector<int64_t> impossible[] = {
      {-1}, {int64_t{1} << 40, int64_t{1} << 40}, {0, int64_t{1} << 62, 8}, {INT64_MAX}};
  for (const auto& shape : impossible) {
    CHECK(!is_countable(shape));
    Announce announce;
    announce.requests = {{sample_request("t"), {0}}};
    announce.requests[0].request.tensors[0].shape = shape;
    CHECK_THROWS(ErrorCode::kInternal, decode_announce(encode(announce)));
  }
  CHECK(is_countable({}));
  CHECK(is_countable({0, 5}));
  CHECK(is_countable({int64_t{1} << 30, int64_t{1} << 29}));
}

TEST(an_allgather_without_dimensions_is_refused) {
  Announce announce;
  announce.requests = {{sample_request("t"), {0}}};
  announce.requests[0].request.op = OpType::kAllgather;
  announce.requests[0].request.tensors[0].shape = {};
  CHECK_THROWS(ErrorCode::kInternal, decode_announce(encode(announce)));
}

TEST(buckets_must_cover_the_responses) {
  for (const uint32_t tensors : {0U, 1U, 3U, 0xffffffffU}) {
    Cycle cycle = sample_cycle();
    cycle.buckets = {{tensors, CutReason::kAllReady}, {1, CutReason::kAlone}};
    if (tensors == 2) continue;
    CHECK_THROWS(ErrorCode::kInternal, decode_cycle(encode(cycle)));
  }
}

TEST(a_setting_out_of_range_is_refused) {
  Setting setting;
  setting.cycle_time_ms = 51;
  CHECK_THROWS(ErrorCode::kInternal, decode_proposal(encode(Proposal{1, setting})));
  setting.cycle_time_ms = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS(ErrorCode::kInternal, decode_proposal(encode(Proposal{1, setting})));
}
