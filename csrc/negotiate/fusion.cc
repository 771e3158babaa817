#include "negotiate/fusion.h"

#include <algorithm>
#include <utility>

namespace hvdtune {
namespace {

struct OpenBucket {
  std::vector<size_t> members;
  size_t bytes = 0;
  CutReason reason = CutReason::kAllReady;
};

// A group of several dtypes is divided when it is carried out.
bool fusable(const Response& response) {
  const std::vector<TensorSpec>& tensors = response.request.tensors;
  return response.error.empty() && response.request.op == OpType::kAllreduce && !tensors.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorSpec& tensor) { return tensor.dtype == tensors[0].dtype; });
}

bool same_kind(const Request& a, const Request& b) {
  return a.process_set == b.process_set && a.tensors[0].dtype == b.tensors[0].dtype &&
         a.reduce_op == b.reduce_op && a.prescale == b.prescale && a.postscale == b.postscale;
}

// Two that would fit together are apart for their kinds only.
void name_kinds(std::vector<OpenBucket>& buckets, const std::vector<size_t>& open,
                size_t threshold) {
  for (const size_t one : open) {
    const bool fits = std::ranges::any_of(open, [&](size_t other) {
      return other != one && buckets[one].bytes + buckets[other].bytes <= threshold;
    });
    if (fits) buckets[one].reason = CutReason::kKind;
  }
}

}  // namespace

FusionPlan plan_fusion(std::vector<Response> ready, int64_t threshold_bytes, CutReason at_end) {
  const auto threshold = static_cast<size_t>(threshold_bytes);
  std::vector<OpenBucket> buckets;
  std::vector<size_t> open;  // indexes of buckets that may still grow, one per kind of tensor
  for (size_t i = 0; i < ready.size(); ++i) {
    const size_t bytes = bytes_of(ready[i].request);
    if (!fusable(ready[i]) || threshold == 0) {
      const CutReason why = fusable(ready[i]) ? CutReason::kFusionOff : CutReason::kAlone;
      buckets.push_back({{i}, bytes, why});
      continue;
    }
    const auto kin = std::find_if(open.begin(), open.end(), [&](size_t bucket) {
      return same_kind(ready[buckets[bucket].members[0]].request, ready[i].request);
    });
    if (kin != open.end() && buckets[*kin].bytes + bytes <= threshold) {
      buckets[*kin].members.push_back(i);
      buckets[*kin].bytes += bytes;
      continue;
    }
    if (kin != open.end()) {
      buckets[*kin].reason = CutReason::kThreshold;
      open.erase(kin);
    }
    open.push_back(buckets.size());
    buckets.push_back({{i}, bytes, at_end});
  }
  name_kinds(buckets, open, threshold);

  FusionPlan plan;
  plan.responses.reserve(ready.size());
  for (const OpenBucket& bucket : buckets) {
    for (const size_t member : bucket.members) plan.responses.push_back(std::move(ready[member]));
    plan.buckets.push_back({static_cast<uint32_t>(bucket.members.size()), bucket.reason});
  }
  return plan;
}

}  // namespace hvdtune
