// Which ready tensors travel together.
#pragma once

#include <cstdint>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

struct FusionPlan {
  std::vector<Response> responses;  // reordered so that each bucket is a run of them
  std::vector<BucketCut> buckets;
};

// Allreduces of one process set, dtype, operation and scaling share a bucket while its bytes stay
// within threshold_bytes; 0 gives every tensor a bucket of its own. Buckets come in the order in
// which their first tensor became ready, tensors within one in theirs. `at_end`: why nothing more
// is added to buckets that have room left.
FusionPlan plan_fusion(std::vector<Response> ready, int64_t threshold_bytes,
                       CutReason at_end = CutReason::kAllReady);

}  // namespace hvdtune
