#include "negotiate/validate.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace hvdtune {
namespace {

// Prefix of the name of a barrier with which a rank reports that its call raised an error.
constexpr std::string_view kRefused = "refused.";
constexpr size_t kMostTensors = 4;  // of a group that a sentence lists

bool tensors_agree(OpType op, const TensorSpec& a, const TensorSpec& b) {
  if (a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
  const ptrdiff_t from = row_of(op).is_ragged && !a.shape.empty() ? 1 : 0;
  return std::equal(a.shape.begin() + from, a.shape.end(), b.shape.begin() + from);
}

bool agree(const Request& a, const Request& b) {
  return a.op == b.op && a.reduce_op == b.reduce_op && a.root == b.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.on_gpu == b.on_gpu &&
         a.in_graph == b.in_graph && (row_of(a.op).takes_splits || a.splits == b.splits) &&
         std::equal(
             a.tensors.begin(), a.tensors.end(), b.tensors.begin(), b.tensors.end(),
             [&](const TensorSpec& x, const TensorSpec& y) { return tensors_agree(a.op, x, y); });
}

// Which of a group's tensors is the first to differ; -1 when they differ in something else.
int first_difference(const Request& a, const Request& b) {
  if (a.op != b.op || a.tensors.size() != b.tensors.size()) return -1;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    if (!tensors_agree(a.op, a.tensors[i], b.tensors[i])) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

std::string list_of(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) {
    text.append(i == 0 ? "" : ", ").append(std::to_string(values[i]));
  }
  return text + "]";
}

std::string describe(const Request& request) {
  if (request.name.starts_with(kRefused)) return "a call that raised an error there";
  const OpRow& row = row_of(request.op);
  std::string text(row.name);
  if (row.reduces) text.append("(").append(name_of(request.reduce_op)) += ")";
  if (row.has_root) text += " from rank " + std::to_string(request.root);
  if (request.tensors.size() > 1) {
    text += " of " + std::to_string(request.tensors.size()) + " tensors:";
  }
  for (size_t i = 0; i < std::min(request.tensors.size(), kMostTensors); ++i) {
    const TensorSpec& tensor = request.tensors[i];
    text.append(i == 0 ? " " : ", ").append(name_of(tensor.dtype)) += " " + list_of(tensor.shape);
  }
  if (request.tensors.size() > kMostTensors) text += ", ...";
  if (!request.splits.empty()) {
    text += (row.takes_splits ? " splits " : " ") + list_of(request.splits);
  }
  if (request.on_gpu) text += request.in_graph ? " in a CUDA graph" : " on a GPU";
  if (request.prescale != 1.0) text += " prescale " + std::to_string(request.prescale);
  if (request.postscale != 1.0) text += " postscale " + std::to_string(request.postscale);
  return text;
}

std::string describe(const RankMask& mask) {
  const std::vector<int> ranks = mask.ranks();
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text.append(i == 0 ? " " : ", ").append(std::to_string(ranks[i]));
  }
  return text;
}

std::string disagreement(std::span<const Version> versions) {
  std::vector<std::pair<const Request*, RankMask>> camps;
  for (const auto& [request, ranks] : versions) {
    const Request& mine = *request;  // clang 14 captures no bindings
    const auto camp = std::find_if(camps.begin(), camps.end(),
                                   [&](const auto& each) { return agree(*each.first, mine); });
    if (camp == camps.end()) {
      camps.emplace_back(request, ranks);
    } else {
      camp->second |= ranks;
    }
  }
  if (camps.size() < 2) return {};
  std::sort(camps.begin(), camps.end(), [](const auto& a, const auto& b) {
    return a.second.ranks().front() < b.second.ranks().front();
  });
  std::string announced;
  for (const auto& [request, ranks] : camps) {
    announced +=
        (announced.empty() ? "" : ", ") + describe(ranks) + " announced " + describe(*request);
  }
  const int at = first_difference(*camps[0].first, *camps[1].first);
  if (camps[0].first->tensors.size() > 1 && at >= 0) {
    announced += "; the first difference is in tensor " + std::to_string(at) + " of the group";
  }
  const bool one_device = std::ranges::all_of(
      camps, [&](const auto& camp) { return camp.first->on_gpu == camps[0].first->on_gpu; });
  const bool all_in_graphs = std::ranges::all_of(
      camps, [&](const auto& camp) { return camp.first->in_graph == camps[0].first->in_graph; });
  return "tensor \"" + camps[0].first->name + "\" differs between ranks: " + announced +
         "; every rank must call the same operation with the same shape and dtype" +
         (one_device ? "" : ", in host memory on all ranks or on GPUs on all ranks") +
         (all_in_graphs ? "" : ", and must capture it into a CUDA graph on all ranks or on none");
}

}  // namespace hvdtune
