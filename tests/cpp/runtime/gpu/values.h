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

// One of `ranks` ranks adds up more tensors than one launch has room for, in place or not.
inline void check_sums_of_many(Runtime& runtime, const Device& device, int rank, int ranks,
                               bool in_place) {
  constexpr int kTensors = 300;
  std::vector<std::unique_ptr<GpuTensorPair>> tensors;
  std::vector<Submission> submissions;
  for (int i = 0; i < kTensors; ++i) {
    const auto count = static_cast<size_t>(i % 19);
    Request request = request_of(OpType::kAllreduce, "t" + std::to_string(i));
    request.tensors = {{DType::kInt32, {static_cast<int64_t>(count)}}};
    const Values values =
        values_like(DType::kInt32, count, [&](size_t at) { return at + i + 100.0 * rank; });
    tensors.push_back(std::make_unique<GpuTensorPair>(device, values));
    const GpuTensorPair& tensor = *tensors.back();
    submissions.push_back(
        on_gpu(device, request, {in_place ? tensor.in_place() : tensor.memory()}));
  }
  for (const Handle handle : runtime.submit(std::move(submissions))) finish(runtime, handle);
  for (int i = 0; i < kTensors; ++i) {
    const Values sums = values_like(DType::kInt32, static_cast<size_t>(i % 19), [&](size_t at) {
      return ranks * (at + i) + 50.0 * ranks * (ranks - 1);
    });
    const GpuTensorPair& tensor = *tensors[static_cast<size_t>(i)];
    const uint8_t* result = in_place ? tensor.in_place().output : tensor.memory().output;
    CHECK(device.download(result, sums.bytes.size()) == sums.bytes);
  }
  CHECK(runtime.counts().buckets < kTensors);
}

}  // namespace hvdtune::testing
