#include "wire/message.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <span>
#include <string_view>

#include "wire/codec.h"

namespace hvdtune {
namespace {

constexpr uint8_t kFlagWaiting = 1;
constexpr size_t kSmallestRequest = 2 + 4 + 4 + 16 + 4 + 4 + 4;
constexpr size_t kMostIdWords = size_t{1} << 16;

enum class IdForm : uint8_t { kList, kBits };
enum class RunForm : uint8_t { kFull, kCompact };

void put(Writer& out, const Request& request) {
  out.put(request.op);
  out.put(request.reduce_op);
  out.put(request.root);
  out.put(request.process_set);
  out.put(request.prescale);
  out.put(request.postscale);
  out.put(std::string_view(request.name));
  out.put(static_cast<uint32_t>(request.tensors.size()));
  for (const TensorSpec& tensor : request.tensors) {
    out.put(tensor.dtype);
    out.put(tensor.shape);
  }
  out.put(request.splits);
}

Request get_request(Reader& in) {
  Request request;
  request.op = in.get_enum<OpType>(kOpTypeCount);
  request.reduce_op = in.get_enum<ReduceOp>(kReduceOpCount);
  request.root = in.get<int32_t>();
  request.process_set = in.get<uint32_t>();
  request.prescale = in.get<double>();
  request.postscale = in.get<double>();
  request.name = in.get_string();
  request.tensors.resize(in.get_count(5));
  for (TensorSpec& tensor : request.tensors) {
    tensor.dtype = in.get_enum<DType>(kDTypeCount);
    tensor.shape = in.get_list<int64_t>();
  }
  request.splits = in.get_list<int64_t>();
  const std::string flaw = flaw_of(request);
  if (!flaw.empty()) in.malformed(flaw);
  return request;
}

// Bits when they take less room than a list.
void put_ids(Writer& out, std::span<const uint32_t> ids) {
  const size_t words = ids.empty() ? 0 : (ids.back() - ids.front()) / 64 + 1;
  if (ids.empty() || words > kMostIdWords || words * 8 + 4 >= ids.size() * 4) {
    out.put(IdForm::kList);
    out.put(static_cast<uint32_t>(ids.size()));
    for (const uint32_t id : ids) out.put(id);
    return;
  }
  std::vector<uint64_t> bits(words, 0);
  for (const uint32_t id : ids) {
    const uint32_t at = id - ids.front();
    bits[at / 64] |= uint64_t{1} << (at % 64);
  }
  out.put(IdForm::kBits);
  out.put(ids.front());
  out.put(bits);
}

std::vector<uint32_t> get_ids(Reader& in) {
  if (in.get_enum<IdForm>(2) == IdForm::kList) {
    std::vector<uint32_t> ids = in.get_list<uint32_t>();
    const auto misplaced = std::ranges::adjacent_find(ids, std::greater_equal());
    if (misplaced != ids.end()) in.malformed("cache numbers are not in ascending order");
    return ids;
  }
  const uint32_t first = in.get<uint32_t>();
  const std::vector<uint64_t> bits = in.get_list<uint64_t>();
  if (bits.size() > kMostIdWords || first > kNoCacheId - 64 * bits.size()) {
    in.malformed("cache numbers are out of range");
  }
  std::vector<uint32_t> ids;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
      const auto bit = static_cast<uint32_t>(std::countr_zero(rest));
      ids.push_back(first + static_cast<uint32_t>(64 * word) + bit);
    }
  }
  return ids;
}

void put(Writer& out, const Setting& setting) {
  for (const Knob& knob : knob_table()) out.put(knob.get(setting));
}

Setting get_setting(Reader& in) {
  Setting setting;
  for (const Knob& knob : knob_table()) {
    try {
      set_knob(setting, knob.name, in.get<double>());
    } catch (const Error& error) {
      in.malformed(error.what());
    }
  }
  return setting;
}

void put(Writer& out, const TimelineOrder& order) {
  out.put(static_cast<uint8_t>(order.record));
  out.put(std::string_view(order.path));
  out.put(order.max_bytes);
}

TimelineOrder get_timeline_order(Reader& in) {
  TimelineOrder order;
  order.record = in.get<uint8_t>() != 0;
  order.path = in.get_string();
  order.max_bytes = in.get<uint64_t>();
  return order;
}

void put(Writer& out, const Response& response) {
  put(out, response.request);
  out.put(response.first_dims);
  out.put(std::string_view(response.error));
  out.put(response.cache_id);
}

Response get_response(Reader& in) {
  Response response;
  response.request = get_request(in);
  response.first_dims = in.get_list<int64_t>();
  response.error = in.get_string();
  response.cache_id = in.get<uint32_t>();
  return response;
}

// Compact responses travel in runs of ascending numbers.
void put_responses(Writer& out, const std::vector<Response>& responses) {
  out.put(static_cast<uint32_t>(responses.size()));
  std::vector<uint32_t> ids;
  for (size_t at = 0; at < responses.size();) {
    if (!responses[at].compact) {
      out.put(RunForm::kFull);
      put(out, responses[at++]);
      continue;
    }
    ids.assign(1, responses[at++].cache_id);
    while (at < responses.size() && responses[at].compact && responses[at].cache_id > ids.back()) {
      ids.push_back(responses[at++].cache_id);
    }
    out.put(RunForm::kCompact);
    put_ids(out, ids);
  }
}

std::vector<Response> get_responses(Reader& in) {
  const size_t count = in.get<uint32_t>();
  std::vector<Response> responses;
  while (responses.size() < count) {
    if (in.get_enum<RunForm>(2) == RunForm::kFull) {
      responses.push_back(get_response(in));
      continue;
    }
    const std::vector<uint32_t> ids = get_ids(in);
    if (ids.empty()) in.malformed("a run of responses is empty");
    for (const uint32_t id : ids) {
      Response& response = responses.emplace_back();
      response.cache_id = id;
      response.compact = true;
    }
  }
  if (responses.size() != count) in.malformed("there are more responses than announced");
  return responses;
}

}  // namespace

std::string_view name_of(CutReason reason) {
  constexpr std::array<std::string_view, kCutReasonCount> kNames = {
      "nothing else was ready",     "fusion threshold",    "operation never fuses", "fusion is off",
      "others are of another kind", "cycle time was over", "enough was ready"};
  return kNames[static_cast<size_t>(reason)];
}

bool is_countable(const std::vector<int64_t>& shape) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 8;  // of the widest elements
  int64_t count = 1;
  for (const int64_t dim : shape) {
    if (dim < 0 || (dim > 0 && count > kMost / dim)) return false;
    count *= std::max<int64_t>(dim, 1);
  }
  return true;
}

int64_t element_count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::string flaw_of(const Request& request) {
  const bool has_rows = row_of(request.op).has_rows;
  size_t bytes = 0;
  for (const TensorSpec& tensor : request.tensors) {
    if (!is_countable(tensor.shape)) return "a dimension is negative, or they are too large";
    if (has_rows && tensor.shape.empty()) {
      return std::string(name_of(request.op)) +
             " needs at least one dimension to divide or concatenate along; reshape it to [1]";
    }
    const size_t more = bytes_of(tensor);
    if (more > std::numeric_limits<int64_t>::max() - bytes) return "the tensors are too large";
    bytes += more;
  }
  return {};
}

size_t bytes_of(const TensorSpec& tensor) {
  return static_cast<size_t>(element_count(tensor.shape)) * size_of(tensor.dtype);
}

size_t bytes_of(const Request& request) {
  size_t bytes = 0;
  for (const TensorSpec& tensor : request.tensors) bytes += bytes_of(tensor);
  return bytes;
}

std::vector<uint8_t> encode(const Announce& announce) {
  Writer out;
  out.put(announce.adopted_version);
  out.put(announce.cycles_seen);
  out.put(announce.cycles_applied);
  out.put(static_cast<uint8_t>(announce.waiting ? kFlagWaiting : 0));
  out.put(announce.leaving);
  put_ids(out, announce.cached);
  out.put(static_cast<uint32_t>(announce.partly.size()));
  for (const IdClaim& claim : announce.partly) {
    out.put(claim.id);
    out.put(claim.ranks);
  }
  out.put(static_cast<uint32_t>(announce.requests.size()));
  for (const Claim& claim : announce.requests) {
    put(out, claim.request);
    out.put(claim.ranks);
  }
  out.put(static_cast<uint32_t>(announce.steps.size()));
  for (const StepMark& mark : announce.steps) {
    out.put(mark.rank);
    out.put(mark.step);
    out.put(mark.duration_ns);
  }
  return out.take();
}

Announce decode_announce(Bytes bytes) {
  Reader in(bytes);
  Announce announce;
  announce.adopted_version = in.get<uint32_t>();
  announce.cycles_seen = in.get<uint64_t>();
  announce.cycles_applied = in.get<uint64_t>();
  announce.waiting = (in.get<uint8_t>() & kFlagWaiting) != 0;
  announce.leaving = in.get_list<int32_t>();
  announce.cached = get_ids(in);
  announce.partly.resize(in.get_count(8));
  for (IdClaim& claim : announce.partly) {
    claim.id = in.get<uint32_t>();
    claim.ranks = in.get_list<int32_t>();
  }
  announce.requests.resize(in.get_count(kSmallestRequest + 4));
  for (Claim& claim : announce.requests) {
    claim.request = get_request(in);
    claim.ranks = in.get_list<int32_t>();
  }
  announce.steps.resize(in.get_count(20));
  for (StepMark& mark : announce.steps) {
    mark.rank = in.get<int32_t>();
    mark.step = in.get<uint64_t>();
    mark.duration_ns = in.get<uint64_t>();
  }
  in.finish();
  return announce;
}

std::vector<uint8_t> encode(const Cycle& cycle) {
  Writer out;
  out.put(cycle.number);
  out.put(cycle.setting_version);
  out.put(static_cast<uint8_t>(cycle.setting.has_value()));
  if (cycle.setting) put(out, *cycle.setting);
  put_responses(out, cycle.responses);
  out.put(static_cast<uint32_t>(cycle.buckets.size()));
  for (const BucketCut& cut : cycle.buckets) {
    out.put(cut.tensors);
    out.put(cut.reason);
  }
  out.put(cycle.evicted);
  out.put(cycle.departed);
  out.put(static_cast<uint8_t>(cycle.timeline.has_value()));
  if (cycle.timeline) put(out, *cycle.timeline);
  return out.take();
}

Cycle decode_cycle(Bytes bytes) {
  Reader in(bytes);
  Cycle cycle;
  cycle.number = in.get<uint64_t>();
  cycle.setting_version = in.get<uint32_t>();
  if (in.get<uint8_t>() != 0) cycle.setting = get_setting(in);
  cycle.responses = get_responses(in);
  cycle.buckets.resize(in.get_count(5));
  size_t tensors = 0;
  for (BucketCut& cut : cycle.buckets) {
    cut.tensors = in.get<uint32_t>();
    cut.reason = in.get_enum<CutReason>(kCutReasonCount);
    tensors += cut.tensors;
  }
  if (tensors != cycle.responses.size()) in.malformed("buckets do not cover the responses");
  cycle.evicted = in.get_list<uint32_t>();
  cycle.departed = in.get_list<int32_t>();
  if (in.get<uint8_t>() != 0) cycle.timeline = get_timeline_order(in);
  in.finish();
  return cycle;
}

std::vector<uint8_t> encode(const StepReport& report) {
  Writer out;
  out.put(report.step);
  out.put(report.version);
  out.put(report.end_ns);
  out.put(report.durations_ns);
  return out.take();
}

StepReport decode_step_report(Bytes bytes) {
  Reader in(bytes);
  StepReport report;
  report.step = in.get<uint64_t>();
  report.version = in.get<int64_t>();
  report.end_ns = in.get<uint64_t>();
  report.durations_ns = in.get_list<uint64_t>();
  in.finish();
  return report;
}

std::vector<uint8_t> encode(const Notice& notice) {
  Writer out;
  out.put(notice.subject);
  out.put(std::string_view(notice.text));
  return out.take();
}

Notice decode_notice(Bytes bytes) {
  Reader in(bytes);
  Notice notice;
  notice.subject = in.get<int32_t>();
  notice.text = in.get_string();
  in.finish();
  return notice;
}

std::vector<uint8_t> encode(const Proposal& proposal) {
  Writer out;
  out.put(proposal.version);
  put(out, proposal.setting);
  return out.take();
}

Proposal decode_proposal(Bytes bytes) {
  Reader in(bytes);
  Proposal proposal;
  proposal.version = in.get<uint32_t>();
  proposal.setting = get_setting(in);
  in.finish();
  return proposal;
}

std::vector<uint8_t> encode(const TimelineOrder& order) {
  Writer out;
  put(out, order);
  return out.take();
}

TimelineOrder decode_timeline_order(Bytes bytes) {
  Reader in(bytes);
  TimelineOrder order = get_timeline_order(in);
  in.finish();
  return order;
}

}  // namespace hvdtune
