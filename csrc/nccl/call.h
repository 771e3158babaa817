// What is asked of NCCL: one collective on tensors in a GPU's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "base/op_table.h"
#include "base/reduce_op.h"
#include "device/gpu.h"

namespace hvdtune {

struct GpuTensor {
  const uint8_t* input = nullptr;  // null: this rank has joined, and adds identity elements
  uint8_t* output = nullptr;
  size_t count = 0;  // elements
};

// A part of a bucket that NCCL reduces within hosts and somebody else between them. Between the two
// steps this rank has a share of its host's sum, which that one turns into a share of the result.
struct HostChunk {
  size_t begin = 0;  // its first element, of the packed bucket
  size_t hosts = 1;  // all of which have equally many ranks
  // What the first step leaves.
  std::shared_ptr<GpuMemory> packed;
  std::shared_ptr<PinnedMemory> share;  // in the type in which its elements travel
  size_t count = 0;                     // of the share's elements; may be 0
};

enum class GpuStep : uint8_t {
  kAll,
  kReduceOnHost,  // an allreduce's first, on a communicator of the ranks of a host
  kGatherOnHost,  // and its second
};

// One collective, the same on all ranks of the set but for addresses. What an operation does not
// need keeps its default.
struct GpuCall {
  OpType op = OpType::kAllreduce;
  DType dtype = DType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1.0;
  double postscale = 1.0;
  uint64_t identity = 0;           // the reduction's identity element, in the bits of dtype
  std::vector<GpuTensor> tensors;  // allreduce: a bucket; otherwise one, whose count may be 0
  int root = 0;                    // broadcast: a rank of the set
  // What each rank is sent, and what comes from each: elements of a reduction, or bytes.
  std::vector<size_t> to_ranks;
  std::vector<size_t> from_ranks;
  GpuStep step = GpuStep::kAll;
  std::shared_ptr<HostChunk> chunk;  // of the other steps
};

}  // namespace hvdtune
