#include "collective/reduce/identity_element.h"

#include <cstring>
#include <limits>

#include "base/half.h"

namespace hvdtune {
namespace {

template <typename T>
void fill(T value, uint8_t* out, size_t count) {
  for (size_t i = 0; i < count; ++i) std::memcpy(out + i * sizeof(T), &value, sizeof(T));
}

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

}  // namespace

void fill_identity(DType dtype, ReduceOp op, uint8_t* out, size_t count) {
  switch (dtype) {
    case DType::kBool:
      return fill(identity<bool>(op), out, count);
    case DType::kUint8:
      return fill(identity<uint8_t>(op), out, count);
    case DType::kInt8:
      return fill(identity<int8_t>(op), out, count);
    case DType::kInt16:
      return fill(identity<int16_t>(op), out, count);
    case DType::kInt32:
      return fill(identity<int32_t>(op), out, count);
    case DType::kInt64:
      return fill(identity<int64_t>(op), out, count);
    case DType::kFloat16:
      return fill(to_half(identity<float>(op)), out, count);
    case DType::kBfloat16:
      return fill(to_bfloat16(identity<float>(op)), out, count);
    case DType::kFloat32:
      return fill(identity<float>(op), out, count);
    case DType::kFloat64:
      return fill(identity<double>(op), out, count);
  }
}

}  // namespace hvdtune
