#include "negotiate/fusion.h"

#include <algorithm>
#include <utility>

#include "negotiate/bucket_plan.h"

namespace hvdtune {
namespace {

// A group of several dtypes is divided when it is carried out.
bool fusable(const Response& response) {
  const std::vector<TensorSpec>& tensors = response.request.tensors;
  return response.error.empty() && row_of(response.request.op).fuses && !tensors.empty() &&
         std::all_of(tensors.begin(), tensors.end(),
                     [&](const TensorSpec& tensor) { return tensor.dtype == tensors[0].dtype; });
}

bool same_kind(const Request& a, const Request& b) {
  return a.process_set == b.process_set && a.on_gpu == b.on_gpu && a.in_graph == b.in_graph &&
         a.tensors[0].dtype == b.tensors[0].dtype && a.reduce_op == b.reduce_op &&
         a.prescale == b.prescale && a.postscale == b.postscale;
}

// Numbers the kinds of responses: those of one number may share a bucket.
std::vector<PlanItem> items_of(const std::vector<Response>& ready) {
  std::vector<PlanItem> items;
  std::vector<const Request*> kinds;
  items.reserve(ready.size());
  for (const Response& response : ready) {
    PlanItem item{bytes_of(response.request)};
    if (fusable(response)) {
      const auto known = std::ranges::find_if(
          kinds, [&](const Request* kind) { return same_kind(*kind, response.request); });
      item.kind = static_cast<int>(known - kinds.begin());
      if (known == kinds.end()) kinds.push_back(&response.request);
    }
    items.push_back(item);
  }
  return items;
}

}  // namespace

FusionPlan plan_fusion(std::vector<Response> ready, int64_t threshold_bytes, CutReason at_end) {
  FusionPlan plan;
  plan.responses.reserve(ready.size());
  for (const PlannedBucket& bucket : plan_buckets(items_of(ready), threshold_bytes, at_end)) {
    for (const size_t member : bucket.members) plan.responses.push_back(std::move(ready[member]));
    plan.buckets.push_back({static_cast<uint32_t>(bucket.members.size()), bucket.reason});
  }
  return plan;
}

}  // namespace hvdtune
