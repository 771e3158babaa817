// Collectives on tensors in a GPU's memory, put on a stream by one communicator's rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/op_table.h"
#include "base/reduce_op.h"
#include "device/graph_owners.h"
#include "device/kernel_launcher.h"
#include "device/memory_pool.h"
#include "nccl/communicator.h"

namespace hvdtune {

enum class GpuBits {
  kNccl,   // what NCCL's reduction gives: depends on sizes, algorithms and its version
  kExact,  // those of the reduction on processors, see collective/reduce/reduce.h
};

struct GpuTensor {
  const uint8_t* input = nullptr;  // null: this rank has joined, and adds identity elements
  uint8_t* output = nullptr;
  size_t count = 0;  // elements
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
};

// How the ranks of a set are spread over hosts: the order of a reduction.
struct GpuOrder {
  std::vector<int> ranks;  // host after host
  std::vector<uint32_t> host_sizes;
};

// Thread rule: as the communicator's.
class GpuCollectives {
 public:
  GpuCollectives(std::unique_ptr<NcclCommunicator> comm, std::shared_ptr<const Gpu> gpu,
                 CudaStream stream, GpuMemoryPool& pool, KernelLauncher& kernels, GpuOrder order,
                 GpuBits bits);

  // Returns when the stream has it. Does not wait for what it carries out.
  void enqueue(const GpuCall& call);
  // The same on a stream that is being captured. What the graph will use is added to `owners`,
  // which it has to keep.
  void capture(const GpuCall& call, CudaStream stream, GraphOwners::Owners& owners);
  // Whether a graph has operations of it: NCCL ends no communicator before.
  bool is_in_graphs() const { return in_graphs_.use_count() > 1; }
  NcclCommunicator& communicator() { return *comm_; }

 private:
  struct Run;
  void allreduce(const GpuCall& call);
  void reduce_run(const GpuCall& call, const Run& run, uint8_t* packed, size_t count);
  void allreduce_exactly(const GpuCall& call, uint8_t* packed, size_t count);
  void reducescatter(const GpuCall& call);
  void reducescatter_exactly(const GpuCall& call);
  void broadcast(const GpuCall& call);
  void allgather(const GpuCall& call);
  void alltoall(const GpuCall& call);
  GpuReduction reduction_of(const GpuCall& call) const;
  std::shared_ptr<GpuMemory> take(size_t bytes);
  size_t self() const { return static_cast<size_t>(comm_->rank()); }
  size_t size() const { return static_cast<size_t>(comm_->size()); }

  std::unique_ptr<NcclCommunicator> comm_;
  const std::shared_ptr<const Gpu> gpu_;
  CudaStream stream_;                      // the captured one in capture()
  GraphOwners::Owners* owners_ = nullptr;  // in capture()
  const std::shared_ptr<const void> in_graphs_ = std::make_shared<int>();  // a copy in each graph
  GpuMemoryPool& pool_;
  KernelLauncher& kernels_;
  const GpuOrder order_;
  std::vector<size_t> places_;  // of each rank's contribution in that order
  const GpuBits bits_;
  std::shared_ptr<GpuMemory> host_sizes_;  // of order_, for kernels
};

}  // namespace hvdtune
