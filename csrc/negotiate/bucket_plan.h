// Which tensors share a bucket, by their sizes and kinds alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

// Tensors of equal kind may share a bucket; one without a kind has a bucket of its own.
struct PlanItem {
  static constexpr int kNeverFuses = -1;

  size_t bytes = 0;
  int kind = kNeverFuses;
};

struct PlannedBucket {
  std::vector<size_t> members;  // indexes of items, ascending
  size_t bytes = 0;
  int kind = PlanItem::kNeverFuses;
  CutReason reason = CutReason::kAllReady;
};

// Items of a kind share a bucket while its bytes stay within threshold_bytes; 0 gives every item a
// bucket of its own. Each kind has one open bucket, which items of other kinds do not close.
// Buckets come in the order of their first items. `at_end`: why nothing more is added to buckets
// that have room left. Pure.
std::vector<PlannedBucket> plan_buckets(std::span<const PlanItem> items, int64_t threshold_bytes,
                                        CutReason at_end);

}  // namespace hvdtune
