#include "nccl/packing.h"

#include <algorithm>

namespace hvdtune {
namespace {

bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

bool is_narrow(DType dtype) {
  return dtype == DType::kUint8 || dtype == DType::kInt8 || dtype == DType::kInt16 ||
         dtype == DType::kUint16;
}

}  // namespace

DType travelling_type(DType dtype) {
  if (dtype == DType::kBool) return DType::kUint8;
  return is_narrow(dtype) ? DType::kInt32 : dtype;
}

ReduceOp travelling_op(const GpuCall& call) {
  const ReduceOp op = folded(call.dtype, call.reduce_op);
  return op == ReduceOp::kAverage && !is_floating(call.dtype) ? ReduceOp::kSum : op;
}

uint64_t travelling_identity(const GpuCall& call) {
  switch (call.dtype) {
    case DType::kInt8:
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(call.identity)));
    case DType::kInt16:
      return static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(call.identity)));
    default:
      return call.identity;
  }
}

int divisor_of(const GpuCall& call, size_t ranks) {
  const bool divides = call.reduce_op == ReduceOp::kAverage && !is_floating(call.dtype);
  return divides ? static_cast<int>(ranks) : 1;
}

bool has_arithmetic(const GpuCall& call) {
  return is_narrow(call.dtype) || call.prescale != 1.0 || call.postscale != 1.0 ||
         (call.reduce_op == ReduceOp::kAverage && !is_floating(call.dtype));
}

ReduceOp folded(DType dtype, ReduceOp op) {
  if (dtype != DType::kBool) return op;
  return op == ReduceOp::kMin || op == ReduceOp::kProduct ? ReduceOp::kMin : ReduceOp::kMax;
}

NcclType nccl_type(DType dtype) {
  switch (travelling_type(dtype)) {
    case DType::kUint8:
      return NcclType::kUint8;
    case DType::kInt64:
      return NcclType::kInt64;
    case DType::kFloat16:
      return NcclType::kFloat16;
    case DType::kBfloat16:
      return NcclType::kBfloat16;
    case DType::kFloat32:
      return NcclType::kFloat32;
    case DType::kFloat64:
      return NcclType::kFloat64;
    default:
      return NcclType::kInt32;
  }
}

NcclOp nccl_op(const GpuCall& call) {
  switch (travelling_op(call)) {
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    case ReduceOp::kProduct:
      return NcclOp::kProduct;
    case ReduceOp::kAverage:
      return NcclOp::kAverage;
    default:
      return NcclOp::kSum;
  }
}

size_t packed_count(std::span<const GpuTensor> tensors) {
  size_t count = 0;
  for (const GpuTensor& tensor : tensors) count += aligned(tensor.count);
  return count;
}

PackedRun::PackedRun(const GpuCall& call, size_t begin, size_t most) {
  size_t at = 0;
  const size_t element = size_of(call.dtype);
  for (const GpuTensor& tensor : call.tensors) {
    const size_t from = std::max(at, begin);
    const size_t to = std::min(at + tensor.count, begin + most);
    if (from < to) {
      const size_t skipped = (from - at) * element;
      if (tensor.input == nullptr) {
        absent.push_back(piece_at(nullptr, from - begin, to - from));
      } else {
        inputs.push_back(piece_at(tensor.input + skipped, from - begin, to - from));
        outputs.push_back(piece_at(tensor.output + skipped, from - begin, to - from));
      }
    }
    at += aligned(tensor.count);
  }
  count = std::min(at - std::min(at, begin), most);
}

Piece piece_at(const void* address, size_t begin, size_t count) {
  return {cuda_pointer(address), begin, count};
}

std::vector<Piece> in_bytes(std::vector<Piece> pieces, size_t element) {
  for (Piece& piece : pieces) {
    piece.begin *= element;
    piece.count *= element;
  }
  return pieces;
}

}  // namespace hvdtune
