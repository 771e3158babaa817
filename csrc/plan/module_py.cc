// The Python module hvdtune.timeline._plan: how the core fills buckets, without the core.

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "negotiate/bucket_plan.h"

namespace {

std::vector<std::vector<size_t>> plan_buckets(const std::vector<size_t>& bytes,
                                              const std::vector<int>& kinds,
                                              int64_t threshold_bytes) {
  if (bytes.size() != kinds.size()) throw std::invalid_argument("each tensor needs a kind");
  std::vector<hvdtune::PlanItem> items;
  items.reserve(bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i) items.push_back({bytes[i], kinds[i]});
  std::vector<std::vector<size_t>> members;
  for (auto& bucket :
       hvdtune::plan_buckets(items, threshold_bytes, hvdtune::CutReason::kAllReady)) {
    members.push_back(std::move(bucket.members));
  }
  return members;
}

}  // namespace

PYBIND11_MODULE(_plan, module) {
  module.def("plan_buckets", &plan_buckets, pybind11::arg("bytes"), pybind11::arg("kinds"),
             pybind11::arg("threshold_bytes"));
}
