#include "negotiate/validate.h"

#include <algorithm>

namespace hvdtune {
namespace {

bool shapes_agree(const Request& a, const Request& b) {
  if (a.op != OpType::kAllgather) return a.shape == b.shape;
  return a.shape.size() == b.shape.size() &&
         std::equal(a.shape.begin() + 1, a.shape.end(), b.shape.begin() + 1);
}

bool agree(const Request& a, const Request& b) {
  return a.op == b.op && a.reduce_op == b.reduce_op && a.dtype == b.dtype && a.root == b.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && shapes_agree(a, b);
}

}  // namespace

std::string describe(const Request& request) {
  std::string text(name_of(request.op));
  if (request.op == OpType::kAllreduce) text.append("(").append(name_of(request.reduce_op)) += ")";
  if (request.op == OpType::kBroadcast) text += " from rank " + std::to_string(request.root);
  text.append(" ").append(name_of(request.dtype)).append(" [");
  for (size_t i = 0; i < request.shape.size(); ++i) {
    text.append(i == 0 ? "" : ", ").append(std::to_string(request.shape[i]));
  }
  text += "]";
  if (request.prescale != 1.0) text += " prescale " + std::to_string(request.prescale);
  if (request.postscale != 1.0) text += " postscale " + std::to_string(request.postscale);
  return text;
}

std::string disagreement(std::span<const Request* const> by_rank) {
  const auto other = std::find_if(by_rank.begin(), by_rank.end(), [&](const Request* request) {
    return !agree(*by_rank[0], *request);
  });
  if (other == by_rank.end()) return {};
  const auto rank = static_cast<size_t>(other - by_rank.begin());
  return "tensor \"" + by_rank[0]->name + "\" differs between ranks: rank 0 announced " +
         describe(*by_rank[0]) + ", rank " + std::to_string(rank) + " announced " +
         describe(**other) +
         "; every rank must call the same operation with the same shape and "
         "dtype";
}

}  // namespace hvdtune
