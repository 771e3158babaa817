#include "wire/message.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>
#include <string_view>

#include "wire/codec.h"

namespace hvdtune {
namespace {

constexpr size_t kMostIdWords = size_t{1} << 16;

enum class IdForm : uint8_t { kList, kBits };
enum class RunForm : uint8_t { kFull, kCompact };
constexpr int count_of(IdForm /*type*/) { return 2; }
constexpr int count_of(RunForm /*type*/) { return 2; }

}  // namespace

constexpr int count_of(OpType /*type*/) { return kOpTypeCount; }
constexpr int count_of(ReduceOp /*type*/) { return kReduceOpCount; }
constexpr int count_of(DType /*type*/) { return kDTypeCount; }
constexpr int count_of(CutReason /*type*/) { return kCutReasonCount; }

static void fields(auto& archive, OneOf<TensorSpec> auto& tensor) {
  archive(tensor.dtype, tensor.shape);
}

template <typename Archive>
static void fields(Archive& archive, OneOf<Request> auto& request) {
  archive(request.op, request.reduce_op, request.root, request.process_set, request.prescale,
          request.postscale, request.name, request.tensors, request.splits, request.on_gpu,
          request.in_graph);
  if constexpr (Archive::kReads) {
    const std::string flaw = flaw_of(request);
    if (!flaw.empty()) archive.malformed(flaw);
  }
}

static void fields(auto& archive, OneOf<IdClaim> auto& claim) { archive(claim.id, claim.ranks); }

static void fields(auto& archive, OneOf<Claim> auto& claim) { archive(claim.request, claim.ranks); }

static void fields(auto& archive, OneOf<StepMark> auto& mark) {
  archive(mark.rank, mark.step, mark.duration_ns);
}

static void fields(auto& archive, OneOf<StepHold> auto& hold) {
  archive(hold.rank, hold.version, hold.passed);
}

static void fields(auto& archive, OneOf<ScriptValue> auto& value) {
  archive(value.name, value.value);
}

static void fields(auto& archive, OneOf<Response> auto& response) {
  archive(response.request, response.first_dims, response.error, response.cache_id);
}

static void fields(auto& archive, OneOf<BucketCut> auto& cut) { archive(cut.tensors, cut.reason); }

static void fields(auto& archive, OneOf<TimelineOrder> auto& order) {
  archive(order.record, order.path, order.max_bytes);
}

template <typename Archive>
static void fields(Archive& archive, OneOf<Setting> auto& setting) {
  for (const Knob& knob : knob_table()) {
    if constexpr (Archive::kReads) {
      try {
        set_knob(setting, knob.name, archive.template get<double>());
      } catch (const Error& error) {
        archive.malformed(error.what());
      }
    } else {
      archive(knob.get(setting));
    }
  }
  archive(setting.script);
}

namespace {

// Bits when they take less room than a list.
void ids_of(Writer& out, const std::vector<uint32_t>& ids) {
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

void ids_of(Reader& in, std::vector<uint32_t>& ids) {
  if (in.get<IdForm>() == IdForm::kList) {
    in(ids);
    const auto misplaced = std::ranges::adjacent_find(ids, std::greater_equal());
    if (misplaced != ids.end()) in.malformed("cache numbers are not in ascending order");
    return;
  }
  uint32_t first = 0;
  std::vector<uint64_t> bits;
  in(first, bits);
  if (bits.size() > kMostIdWords || first > kNoCacheId - 64 * bits.size()) {
    in.malformed("cache numbers are out of range");
  }
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t rest = bits[word]; rest != 0; rest &= rest - 1) {
      const auto bit = static_cast<uint32_t>(std::countr_zero(rest));
      ids.push_back(first + static_cast<uint32_t>(64 * word) + bit);
    }
  }
}

// Compact responses travel in runs of ascending numbers.
void responses_of(Writer& out, const std::vector<Response>& responses) {
  out.put(static_cast<uint32_t>(responses.size()));
  std::vector<uint32_t> ids;
  for (size_t at = 0; at < responses.size();) {
    if (!responses[at].compact) {
      out.put(RunForm::kFull);
      out.put(responses[at++]);
      continue;
    }
    ids.assign(1, responses[at++].cache_id);
    while (at < responses.size() && responses[at].compact && responses[at].cache_id > ids.back()) {
      ids.push_back(responses[at++].cache_id);
    }
    out.put(RunForm::kCompact);
    ids_of(out, ids);
  }
}

void responses_of(Reader& in, std::vector<Response>& responses) {
  const auto count = in.get<uint32_t>();
  while (responses.size() < count) {
    if (in.get<RunForm>() == RunForm::kFull) {
      in(responses.emplace_back());
      continue;
    }
    std::vector<uint32_t> ids;
    ids_of(in, ids);
    if (ids.empty()) in.malformed("a run of responses is empty");
    for (const uint32_t id : ids) {
      Response& response = responses.emplace_back();
      response.cache_id = id;
      response.compact = true;
    }
  }
  if (responses.size() != count) in.malformed("there are more responses than announced");
}

}  // namespace

static void fields(auto& archive, OneOf<Announce> auto& announce) {
  archive(announce.adopted_version, announce.cycles_seen, announce.cycles_applied, announce.waiting,
          announce.leaving);
  ids_of(archive, announce.cached);
  archive(announce.partly, announce.requests, announce.steps, announce.holds);
}

template <typename Archive>
static void fields(Archive& archive, OneOf<Cycle> auto& cycle) {
  archive(cycle.number, cycle.setting_version, cycle.setting, cycle.prepares, cycle.switch_at);
  responses_of(archive, cycle.responses);
  archive(cycle.buckets, cycle.evicted, cycle.departed, cycle.timeline);
  if constexpr (Archive::kReads) {
    size_t tensors = 0;
    for (const BucketCut& cut : cycle.buckets) tensors += cut.tensors;
    if (tensors != cycle.responses.size()) archive.malformed("buckets do not cover the responses");
  }
}

static void fields(auto& archive, OneOf<StepReport> auto& report) {
  archive(report.step, report.version, report.end_ns, report.durations_ns);
}

static void fields(auto& archive, OneOf<Notice> auto& notice) {
  archive(notice.subject, notice.text);
}

static void fields(auto& archive, OneOf<Proposal> auto& proposal) {
  archive(proposal.version, proposal.setting);
}

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
  const OpRow& row = row_of(request.op);
  size_t bytes = 0;
  for (const TensorSpec& tensor : request.tensors) {
    if (!is_countable(tensor.shape)) return "a dimension is negative, or the tensor is too large";
    if (row.reduces && !is_reducible(tensor.dtype)) {
      return std::string(name_of(tensor.dtype)) +
             " cannot be reduced, only moved by broadcast, allgather and alltoall; cast it to "
             "float16 or bfloat16 first";
    }
    if (row.has_rows && tensor.shape.empty()) {
      return std::string(row.name) +
             " needs at least one dimension to divide or concatenate along; reshape it to [1]";
    }
    const size_t more = bytes_of(tensor);
    if (more > std::numeric_limits<int64_t>::max() - bytes) return "the tensors are too large";
    bytes += more;
  }
  if (request.on_gpu && request.tensors.empty())
    return "an operation without tensors cannot be on a GPU";
  if (request.in_graph && !request.on_gpu) return "it is in a CUDA graph but not on a GPU";
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

std::vector<uint8_t> encode(const Announce& announce) { return encoded(announce); }
std::vector<uint8_t> encode(const Cycle& cycle) { return encoded(cycle); }
std::vector<uint8_t> encode(const StepReport& report) { return encoded(report); }
std::vector<uint8_t> encode(const Notice& notice) { return encoded(notice); }
std::vector<uint8_t> encode(const Proposal& proposal) { return encoded(proposal); }
std::vector<uint8_t> encode(const TimelineOrder& order) { return encoded(order); }
Announce decode_announce(Bytes bytes) { return decoded<Announce>(bytes); }
Cycle decode_cycle(Bytes bytes) { return decoded<Cycle>(bytes); }
StepReport decode_step_report(Bytes bytes) { return decoded<StepReport>(bytes); }
Notice decode_notice(Bytes bytes) { return decoded<Notice>(bytes); }
Proposal decode_proposal(Bytes bytes) { return decoded<Proposal>(bytes); }
TimelineOrder decode_timeline_order(Bytes bytes) { return decoded<TimelineOrder>(bytes); }

}  // namespace hvdtune
