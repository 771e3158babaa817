#include "negotiate/bucket_plan.h"

#include <algorithm>

namespace hvdtune {
namespace {

// Two that would fit together are apart for their kinds only.
void name_kinds(std::vector<PlannedBucket>& buckets, const std::vector<size_t>& open,
                size_t threshold) {
  for (const size_t one : open) {
    const bool fits = std::ranges::any_of(open, [&](size_t other) {
      return other != one && buckets[one].bytes + buckets[other].bytes <= threshold;
    });
    if (fits) buckets[one].reason = CutReason::kKind;
  }
}

}  // namespace

std::vector<PlannedBucket> plan_buckets(std::span<const PlanItem> items, int64_t threshold_bytes,
                                        CutReason at_end) {
  const auto threshold = static_cast<size_t>(threshold_bytes);
  std::vector<PlannedBucket> buckets;
  std::vector<size_t> open;  // indexes of buckets that may still grow, one per kind
  for (size_t i = 0; i < items.size(); ++i) {
    const auto [bytes, kind] = items[i];
    if (kind == PlanItem::kNeverFuses || threshold == 0) {
      const bool alone = kind == PlanItem::kNeverFuses;
      buckets.push_back({{i}, bytes, kind, alone ? CutReason::kAlone : CutReason::kFusionOff});
      continue;
    }
    const auto same = std::ranges::find(open, kind, [&](size_t at) { return buckets[at].kind; });
    if (same != open.end() && buckets[*same].bytes + bytes <= threshold) {
      buckets[*same].members.push_back(i);
      buckets[*same].bytes += bytes;
      continue;
    }
    if (same != open.end()) {
      buckets[*same].reason = CutReason::kThreshold;
      open.erase(same);
    }
    open.push_back(buckets.size());
    buckets.push_back({{i}, bytes, kind, at_end});
  }
  name_kinds(buckets, open, threshold);
  return buckets;
}

}  // namespace hvdtune
