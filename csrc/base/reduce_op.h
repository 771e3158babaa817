// How the contributions of the ranks are folded. The values travel on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvdtune {

// kAdasum is no fold: collective/adasum.h carries it out.
enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct, kAdasum };
inline constexpr std::array<std::string_view, 6> kReduceOpNames = {"sum", "average", "min",
                                                                   "max", "product", "adasum"};
inline constexpr int kReduceOpCount = kReduceOpNames.size();

constexpr std::string_view name_of(ReduceOp op) { return kReduceOpNames[static_cast<size_t>(op)]; }
// Throws Error(kUsage) for a name that is none of these.
inline ReduceOp reduce_op_named(std::string_view name) {
  for (size_t i = 0; i < kReduceOpNames.size(); ++i) {
    if (kReduceOpNames[i] == name) return static_cast<ReduceOp>(i);
  }
  throw Error(ErrorCode::kUsage, "there is no reduction " + std::string(name));
}

}  // namespace hvdtune
