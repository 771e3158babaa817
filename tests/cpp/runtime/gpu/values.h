// Values for collectives of every type.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "gpu_job.h"

namespace hvdtune::testing {

inline constexpr std::array kDTypes = {DType::kBool,    DType::kUint8,    DType::kInt8,
                                       DType::kInt16,   DType::kInt32,    DType::kInt64,
                                       DType::kFloat16, DType::kBfloat16, DType::kFloat32,
                                       DType::kFloat64, DType::kUint16};
inline constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin,
                                    ReduceOp::kMax, ReduceOp::kProduct};

template <typename T, typename Make>
Values made(DType dtype, size_t count, Make make) {
  std::vector<T> elements(count);
  for (size_t i = 0; i < count; ++i) elements[i] = make(i);
  return values_of(dtype, elements);
}

// `value(i)` is a small number; integers get its whole part.
template <typename Value>
Values values_like(DType dtype, size_t count, Value value) {
  switch (dtype) {
    case DType::kBool:
      return made<uint8_t>(dtype, count, [&](size_t i) { return value(i) > 1.0 ? 1 : 0; });
    case DType::kUint8:
      return made<uint8_t>(dtype, count, [&](size_t i) { return static_cast<uint8_t>(value(i)); });
    case DType::kInt8:
      return made<int8_t>(dtype, count, [&](size_t i) { return static_cast<int8_t>(value(i)); });
    case DType::kInt16:
      return made<int16_t>(dtype, count, [&](size_t i) { return static_cast<int16_t>(value(i)); });
    case DType::kUint16:
      return made<uint16_t>(dtype, count,
                            [&](size_t i) { return static_cast<uint16_t>(value(i)); });
    case DType::kInt32:
      return made<int32_t>(dtype, count, [&](size_t i) { return static_cast<int32_t>(value(i)); });
    case DType::kInt64:
      return made<int64_t>(dtype, count, [&](size_t i) { return static_cast<int64_t>(value(i)); });
    case DType::kFloat16:
      return made<Half>(dtype, count,
                        [&](size_t i) { return to_half(static_cast<float>(value(i))); });
    case DType::kBfloat16:
      return made<Bfloat16>(dtype, count,
                            [&](size_t i) { return to_bfloat16(static_cast<float>(value(i))); });
    case DType::kFloat32:
      return made<float>(dtype, count, [&](size_t i) { return static_cast<float>(value(i)); });
    case DType::kFloat64:
      return made<double>(dtype, count, [&](size_t i) { return value(i); });
    default:  // any bytes
      return made<uint8_t>(dtype, count, [&](size_t i) { return static_cast<uint8_t>(value(i)); });
  }
}

// Sums and products of these are exact in every type, in any order, and the averages of two ranks.
inline Values simple(DType dtype, size_t count, int rank) {
  return values_like(dtype, count,
                     [rank](size_t i) { return static_cast<double>(2 * ((i + rank) % 3)); });
}

inline Request request_of(OpType op, const std::string& name, ReduceOp reduce_op = ReduceOp::kSum) {
  Request request;
  request.op = op;
  request.name = name;
  request.reduce_op = reduce_op;
  return request;
}

inline bool can_be_scaled(DType dtype) { return dtype != DType::kBool; }

inline bool is_possible(DType dtype, ReduceOp op) {
  return dtype != DType::kBool || op != ReduceOp::kAverage;
}

}  // namespace hvdtune::testing
