#include "runtime/submission.h"

#include <algorithm>
#include <utility>

#include "base/plural.h"
#include "collective/adasum.h"
#include "negotiate/validate.h"

namespace hvdtune {
namespace {

std::string flaw_of_reduction(const Request& request) {
  const std::string flaw = flaw_of_reduction(request.op, request.reduce_op);
  if (!flaw.empty()) return flaw;
  for (const TensorSpec& tensor : request.tensors) {
    if (tensor.dtype == DType::kBool) {
      if (request.reduce_op == ReduceOp::kAverage)
        return "bool has no average; use sum, min or max";
      if (request.prescale != 1.0 || request.postscale != 1.0) return "bool cannot be scaled";
    }
    if (request.reduce_op == ReduceOp::kAdasum && !adasum_takes(tensor.dtype)) {
      return "Adasum needs a floating-point dtype, not " + std::string(name_of(tensor.dtype));
    }
  }
  return {};
}

std::string flaw_of_splits(const Request& request, size_t ranks) {
  const std::string name(name_of(request.op));
  if (request.tensors.size() != 1) return name + " takes one tensor";
  const int64_t rows = request.tensors[0].shape[0];
  if (request.splits.empty()) {
    return name + " cannot divide " + counted(rows, "row") + " evenly among " +
           counted(ranks, "rank") + "; set splits=";
  }
  int64_t rest = rows;
  const bool fit = std::ranges::all_of(request.splits, [&](int64_t split) {
    if (split < 0 || split > rest) return false;
    rest -= split;
    return true;
  });
  if (fit && rest == 0 && request.splits.size() == ranks) return {};
  return "splits is " + list_of(request.splits) + "; it must have an entry for each of " +
         counted(ranks, "rank") + " and add up to " + counted(rows, "row");
}

std::string flaw_of_new_set(const Request& request, int size) {
  if (request.splits.empty()) return "a process set needs at least one rank";
  for (size_t i = 0; i < request.splits.size(); ++i) {
    if (request.splits[i] < 0 || request.splits[i] >= size) {
      return "rank " + std::to_string(request.splits[i]) + " does not exist in a job of " +
             counted(size, "rank");
    }
    if (i > 0 && request.splits[i] <= request.splits[i - 1]) {
      return "the ranks of a process set must be unique and in ascending order";
    }
  }
  return {};
}

}  // namespace

std::string flaw_of_reduction(OpType op, ReduceOp reduce_op) {
  const OpRow& row = row_of(op);
  if (reduce_op != ReduceOp::kAdasum || row.takes_adasum || !row.reduces) return {};
  return std::string(row.name) + " supports Average, Sum, Min, Max and Product, not Adasum";
}

void fill_splits(std::shared_ptr<const Request>& request, size_t ranks) {
  if (!row_of(request->op).takes_splits || !request->splits.empty()) return;
  const auto parts = static_cast<int64_t>(ranks);
  if (request->tensors.size() != 1 || request->tensors[0].shape[0] % parts != 0) return;
  auto filled = std::make_shared<Request>(*request);
  filled->splits.assign(ranks, request->tensors[0].shape[0] / parts);
  request = std::move(filled);
}

std::string flaw_for_set(const Request& request, const std::vector<int>& ranks, int size) {
  const OpRow& row = row_of(request.op);
  if (row.reduces) return flaw_of_reduction(request);
  if (row.takes_splits) return flaw_of_splits(request, ranks.size());
  if (row.has_root && std::ranges::count(ranks, request.root) == 0) {
    return "root rank " + std::to_string(request.root) + " is not in the process set, which has " +
           describe(RankMask(ranks));
  }
  if (request.op == OpType::kAddSet) return flaw_of_new_set(request, size);
  const bool keeps = request.splits.size() == 1 && request.splits[0] != kWorldSet;
  if (request.op == OpType::kRemoveSet && !keeps) {
    return "the process set of all ranks cannot be removed";
  }
  return {};
}

}  // namespace hvdtune
