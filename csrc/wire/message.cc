#include "wire/message.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "wire/codec.h"

namespace hvdtune {
namespace {

constexpr uint8_t kFlagWaiting = 1;
constexpr uint8_t kFlagLeaving = 2;
constexpr size_t kSmallestRequest = 3 + 4 + 16 + 4 + 4;
constexpr size_t kSmallestResponse = 4 + 1 + 4 + 8;

void put(Writer& out, const Request& request) {
  out.put(request.op);
  out.put(request.reduce_op);
  out.put(request.dtype);
  out.put(request.root);
  out.put(request.prescale);
  out.put(request.postscale);
  out.put(std::string_view(request.name));
  out.put(request.shape);
}

Request get_request(Reader& in) {
  Request request;
  request.op = in.get_enum<OpType>(kOpTypeCount);
  request.reduce_op = in.get_enum<ReduceOp>(kReduceOpCount);
  request.dtype = in.get_enum<DType>(kDTypeCount);
  request.root = in.get<int32_t>();
  request.prescale = in.get<double>();
  request.postscale = in.get<double>();
  request.name = in.get_string();
  request.shape = in.get_list<int64_t>();
  if (!is_countable(request.shape)) in.malformed("a shape is impossible");
  if (request.op == OpType::kAllgather && request.shape.empty()) {
    in.malformed("an allgather has no dimension");
  }
  return request;
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

void put(Writer& out, const Response& response) {
  out.put(response.cache_id);
  out.put(static_cast<uint8_t>(response.compact));
  out.put(response.last_rank);
  out.put(response.late_ns);
  if (response.compact) return;
  put(out, response.request);
  out.put(response.first_dims);
  out.put(std::string_view(response.error));
}

Response get_response(Reader& in) {
  Response response;
  response.cache_id = in.get<uint32_t>();
  response.compact = in.get<uint8_t>() != 0;
  response.last_rank = in.get<int32_t>();
  response.late_ns = in.get<uint64_t>();
  if (response.compact) return response;
  response.request = get_request(in);
  response.first_dims = in.get_list<int64_t>();
  response.error = in.get_string();
  return response;
}

}  // namespace

std::string_view name_of(OpType op) {
  constexpr std::array<std::string_view, kOpTypeCount> kNames = {"allreduce", "broadcast",
                                                                 "allgather", "barrier"};
  return kNames[static_cast<size_t>(op)];
}

std::string_view name_of(CutReason reason) {
  constexpr std::array<std::string_view, kCutReasonCount> kNames = {
      "nothing else was ready", "fusion threshold", "operation never fuses", "fusion is off"};
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

size_t bytes_of(const Request& request) {
  if (request.op == OpType::kBarrier) return 0;
  return static_cast<size_t>(element_count(request.shape)) * size_of(request.dtype);
}

std::vector<uint8_t> encode(const Announce& announce) {
  Writer out;
  out.put(announce.adopted_version);
  out.put(announce.cycles_seen);
  out.put(static_cast<uint8_t>((announce.waiting ? kFlagWaiting : 0) |
                               (announce.leaving ? kFlagLeaving : 0)));
  out.put(announce.cached);
  out.put(static_cast<uint32_t>(announce.requests.size()));
  for (const Request& request : announce.requests) put(out, request);
  out.put(static_cast<uint32_t>(announce.steps.size()));
  for (const StepMark& mark : announce.steps) {
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
  const uint8_t flags = in.get<uint8_t>();
  announce.waiting = (flags & kFlagWaiting) != 0;
  announce.leaving = (flags & kFlagLeaving) != 0;
  announce.cached = in.get_list<uint32_t>();
  announce.requests.resize(in.get_count(kSmallestRequest));
  for (Request& request : announce.requests) request = get_request(in);
  announce.steps.resize(in.get_count(16));
  for (StepMark& mark : announce.steps) {
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
  out.put(static_cast<uint32_t>(cycle.responses.size()));
  for (const Response& response : cycle.responses) put(out, response);
  out.put(static_cast<uint32_t>(cycle.buckets.size()));
  for (const BucketCut& cut : cycle.buckets) {
    out.put(cut.tensors);
    out.put(cut.reason);
  }
  out.put(cycle.evicted);
  out.put(cycle.departed);
  return out.take();
}

Cycle decode_cycle(Bytes bytes) {
  Reader in(bytes);
  Cycle cycle;
  cycle.number = in.get<uint64_t>();
  cycle.setting_version = in.get<uint32_t>();
  if (in.get<uint8_t>() != 0) cycle.setting = get_setting(in);
  cycle.responses.resize(in.get_count(kSmallestResponse));
  for (Response& response : cycle.responses) response = get_response(in);
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

}  // namespace hvdtune
