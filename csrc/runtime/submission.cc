#include "runtime/submission.h"

#include <algorithm>

#include "collective/adasum.h"
#include "negotiate/validate.h"

namespace hvdtune {
namespace {

std::string flaw_of_reduction(const Request& request) {
  for (const TensorSpec& tensor : request.tensors) {
    if (tensor.dtype == DType::kBool) {
      if (request.reduce_op == ReduceOp::kAverage)
        return "bool has no average; use sum, min or max";
      if (request.prescale != 1.0 || request.postscale != 1.0) return "bool cannot be scaled";
    }
    if (request.reduce_op == ReduceOp::kAdasum && !adasum_takes(tensor.dtype)) {
      return "Adasum needs a floating type, not " + std::string(name_of(tensor.dtype));
    }
  }
  if (request.op == OpType::kReducescatter && request.reduce_op == ReduceOp::kAdasum) {
    return "reducescatter cannot use Adasum; use average or sum";
  }
  return {};
}

std::string flaw_of_splits(const Request& request, size_t ranks) {
  if (request.tensors.size() != 1) return "alltoall takes one tensor";
  if (request.splits.size() != ranks) {
    return "there are " + std::to_string(request.splits.size()) + " splits for " +
           std::to_string(ranks) + " ranks";
  }
  const int64_t available = request.tensors[0].shape[0];
  int64_t rows = 0;
  for (const int64_t split : request.splits) {
    if (split < 0) return "a split is negative: " + std::to_string(split);
    if (split > available - rows) {
      return "the splits add up to more than its first dimension, " + std::to_string(available);
    }
    rows += split;
  }
  if (rows == available) return {};
  return "the splits add up to " + std::to_string(rows) + ", not to its first dimension, " +
         std::to_string(available);
}

std::string flaw_of_new_set(const Request& request, int size) {
  if (request.splits.empty()) return "a process set needs at least one rank";
  for (size_t i = 0; i < request.splits.size(); ++i) {
    if (request.splits[i] < 0 || request.splits[i] >= size) {
      return "rank " + std::to_string(request.splits[i]) + " does not exist; there are " +
             std::to_string(size) + " ranks";
    }
    if (i > 0 && request.splits[i] <= request.splits[i - 1]) {
      return "the ranks of a process set must be ascending and different";
    }
  }
  return {};
}

}  // namespace

std::string flaw_for_set(const Request& request, const std::vector<int>& ranks, int size) {
  switch (request.op) {
    case OpType::kAllreduce:
    case OpType::kReducescatter:
      return flaw_of_reduction(request);
    case OpType::kAlltoall:
      return flaw_of_splits(request, ranks.size());
    case OpType::kBroadcast:
      if (std::ranges::count(ranks, request.root)) return {};
      return "root rank " + std::to_string(request.root) + " does not exist; there are " +
             describe(RankMask(ranks));
    case OpType::kAddSet:
      return flaw_of_new_set(request, size);
    case OpType::kRemoveSet:
      if (request.splits.size() == 1 && request.splits[0] != kWorldSet) return {};
      return "the process set of all ranks cannot be removed";
    case OpType::kAllgather:
    case OpType::kBarrier:
    case OpType::kJoin:
      return {};
  }
  return {};
}

}  // namespace hvdtune
