// How the tensors of a reduction are given to NCCL: the type in which their elements travel, and
// how they lie in one buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/kernels.h"
#include "nccl/call.h"
#include "nccl/library.h"

namespace hvdtune {

// Integers below 32 bits travel as what they are added up in, bool as uint8.
DType travelling_type(DType dtype);
inline size_t travelling_bytes(DType dtype) { return size_of(travelling_type(dtype)); }
// The reduction of what travels. Averages of integers are sums there: they are divided once, as on
// processors.
ReduceOp travelling_op(const GpuCall& call);
// The identity element in the type in which it travels.
uint64_t travelling_identity(const GpuCall& call);
// Of what has been reduced over `ranks`.
int divisor_of(const GpuCall& call, size_t ranks);
// Whether elements change on their way to NCCL or from it.
bool has_arithmetic(const GpuCall& call);

// A sum of bools is "or", their product "and".
ReduceOp folded(DType dtype, ReduceOp op);
NcclType nccl_type(DType dtype);  // of what travels
NcclOp nccl_op(const GpuCall& call);

// Tensors begin at a multiple of so many elements, so that copies are of 16 bytes each.
inline constexpr size_t kAligned = 16;
constexpr size_t aligned(size_t count) { return (count + kAligned - 1) / kAligned * kAligned; }
size_t packed_count(std::span<const GpuTensor> tensors);

// Elements [begin, begin + count) of a bucket, of which each tensor begins at an aligned place.
struct PackedRun {
  std::vector<Piece> inputs;
  std::vector<Piece> outputs;
  std::vector<Piece> absent;
  size_t count = 0;

  PackedRun(const GpuCall& call, size_t begin, size_t most);
};

Piece piece_at(const void* address, size_t begin, size_t count);
// The same pieces, counted in bytes.
std::vector<Piece> in_bytes(std::vector<Piece> pieces, size_t element);

}  // namespace hvdtune
