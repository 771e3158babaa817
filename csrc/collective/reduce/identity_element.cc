#include "collective/reduce/identity_element.h"

#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "base/half.h"

namespace hvdtune {
namespace {

template <typename T>
T identity(ReduceOp op) {
  using Limits = std::numeric_limits<T>;
  switch (op) {
    case ReduceOp::kMin:
      return Limits::has_infinity ? Limits::infinity() : Limits::max();
    case ReduceOp::kMax:
      return Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    case ReduceOp::kProduct:
      return T{1};
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      return T{0};
  }
  return T{0};
}

template <typename T, auto convert = std::identity()>
void fill(ReduceOp op, uint8_t* out, size_t count) {
  const auto value = convert(identity<T>(op));
  for (size_t i = 0; i < count; ++i, out += sizeof value) std::memcpy(out, &value, sizeof value);
}

// By DType.
constexpr std::array<void (*)(ReduceOp, uint8_t*, size_t), kReducedDTypeCount> kFills = {
    fill<bool>,    fill<uint8_t>, fill<int8_t>,          fill<int16_t>,
    fill<int32_t>, fill<int64_t>, fill<float, &to_half>, fill<float, &to_bfloat16>,
    fill<float>,   fill<double>,  fill<uint16_t>};

}  // namespace

void fill_identity(DType dtype, ReduceOp op, uint8_t* out, size_t count) {
  kFills[static_cast<size_t>(dtype)](op, out, count);
}

}  // namespace hvdtune
