#include "negotiate/fusion.h"

#include <algorithm>
#include <random>
#include <string>

#include "check.h"

using namespace hvdtune;

namespace {

// An allreduce of `bytes` bytes.
Response ready(const std::string& name, int64_t bytes, DType dtype = DType::kFloat32) {
  Response response;
  response.request.name = name;
  response.request.tensors = {{dtype, {bytes / static_cast<int64_t>(size_of(dtype))}}};
  return response;
}

// "a b|c" for buckets {a, b} and {c}.
std::string layout(const FusionPlan& plan) {
  std::string text;
  size_t at = 0;
  for (const BucketCut& cut : plan.buckets) {
    if (!text.empty()) text += "|";
    for (uint32_t i = 0; i < cut.tensors; ++i) {
      text.append(i == 0 ? "" : " ").append(plan.responses[at++].request.name);
    }
  }
  CHECK_EQ(at, plan.responses.size());
  return text;
}

}  // namespace

TEST(tensors_share_a_bucket_up_to_the_threshold) {
  const FusionPlan plan = plan_fusion({ready("a", 40), ready("b", 60), ready("c", 4)}, 100);
  CHECK_EQ(layout(plan), "a b|c");
  CHECK(plan.buckets[0].reason == CutReason::kThreshold);
  CHECK(plan.buckets[1].reason == CutReason::kAllReady);
}

TEST(the_last_bucket_is_closed_for_what_ends_the_cycle) {
  const FusionPlan plan = plan_fusion({ready("a", 40), ready("b", 80)}, 100, CutReason::kCycleTime);
  CHECK(plan.buckets[0].reason == CutReason::kThreshold);
  CHECK(plan.buckets[1].reason == CutReason::kCycleTime);
}

TEST(buckets_that_would_fit_together_are_apart_for_their_kinds) {
  const Response half = ready("h", 40, DType::kFloat16);
  const FusionPlan close = plan_fusion({ready("a", 40), half}, 100);
  for (const BucketCut& cut : close.buckets) CHECK(cut.reason == CutReason::kKind);
  const FusionPlan far = plan_fusion({ready("a", 80), half}, 100);
  for (const BucketCut& cut : far.buckets) CHECK(cut.reason == CutReason::kAllReady);
}

TEST(tensors_on_gpus_share_no_bucket_with_those_of_the_host) {
  Response on_gpu = ready("g", 4);
  on_gpu.request.on_gpu = true;
  Response another = on_gpu;
  another.request.name = "h";
  CHECK_EQ(layout(plan_fusion({ready("a", 4), on_gpu, ready("b", 4), another}, 100)), "a b|g h");
}

TEST(a_tensor_over_the_threshold_travels_alone) {
  CHECK_EQ(layout(plan_fusion({ready("a", 4), ready("b", 400), ready("c", 4)}, 100)), "a|b|c");
}

TEST(threshold_0_turns_fusion_off) {
  const FusionPlan plan = plan_fusion({ready("a", 4), ready("b", 0), ready("c", 4)}, 0);
  CHECK_EQ(layout(plan), "a|b|c");
  for (const BucketCut& cut : plan.buckets) CHECK(cut.reason == CutReason::kFusionOff);
}

TEST(interleaved_dtypes_fill_one_bucket_each) {
  const FusionPlan plan = plan_fusion({ready("a", 8), ready("h", 8, DType::kFloat16), ready("b", 8),
                                       ready("i", 8, DType::kFloat16), ready("c", 8)},
                                      100);
  CHECK_EQ(layout(plan), "a b c|h i");
}

TEST(different_operations_and_scales_do_not_mix) {
  Response average = ready("average", 8);
  average.request.reduce_op = ReduceOp::kAverage;
  Response scaled = ready("scaled", 8);
  scaled.request.prescale = 0.5;
  Response rescaled = ready("rescaled", 8);
  rescaled.request.postscale = 0.5;
  CHECK_EQ(layout(plan_fusion({ready("a", 8), average, scaled, rescaled, ready("b", 8)}, 100)),
           "a b|average|scaled|rescaled");
}

TEST(what_never_fuses_does_not_close_a_bucket) {
  Response gather = ready("gather", 8);
  gather.request.op = OpType::kAllgather;
  Response barrier;
  barrier.request.op = OpType::kBarrier;
  barrier.request.name = "barrier";
  Response failed = ready("failed", 8);
  failed.error = "differs";
  const FusionPlan plan = plan_fusion({ready("a", 8), gather, barrier, failed, ready("b", 8)}, 100);
  CHECK_EQ(layout(plan), "a b|gather|barrier|failed");
  CHECK(plan.buckets[1].reason == CutReason::kAlone);
}

TEST(every_tensor_is_in_exactly_one_bucket_in_its_kinds_order) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<Response> responses;
    std::vector<std::string> names;
    for (unsigned i = 0; i < random() % 60; ++i) {
      const DType dtype = random() % 2 == 0 ? DType::kFloat32 : DType::kFloat16;
      names.push_back(std::to_string(i));
      responses.push_back(ready(names.back(), static_cast<int64_t>(random() % 400), dtype));
      if (random() % 10 == 0) responses.back().request.op = OpType::kBroadcast;
    }
    const auto threshold = static_cast<int64_t>(random() % 1000);
    const FusionPlan plan = plan_fusion(responses, threshold);
    std::vector<std::string> planned;
    size_t at = 0;
    for (const BucketCut& cut : plan.buckets) {
      CHECK(cut.tensors > 0);
      size_t bytes = 0;
      int last = -1;
      for (uint32_t i = 0; i < cut.tensors; ++i, ++at) {
        const Request& request = plan.responses[at].request;
        CHECK(request.tensors[0].dtype == plan.responses[at - i].request.tensors[0].dtype);
        CHECK(std::stoi(request.name) > last);
        last = std::stoi(request.name);
        bytes += bytes_of(request);
        planned.push_back(request.name);
      }
      CHECK(cut.tensors == 1 || bytes <= static_cast<size_t>(threshold));
    }
    std::sort(planned.begin(), planned.end());
    std::sort(names.begin(), names.end());
    CHECK(planned == names);
  }
}
