// How the contributions of the ranks are folded. The values travel on the wire.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hvdtune {

// kAdasum is no fold: collective/adasum.h carries it out.
enum class ReduceOp : uint8_t { kSum, kAverage, kMin, kMax, kProduct, kAdasum };
inline constexpr int kReduceOpCount = 6;

inline std::string_view name_of(ReduceOp op) {
  constexpr std::array<std::string_view, kReduceOpCount> kNames = {"sum", "average", "min",
                                                                   "max", "product", "adasum"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace hvdtune
