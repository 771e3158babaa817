// Collectives on tensors in a GPU's memory, put on a stream by one communicator's rank.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "device/graph_owners.h"
#include "device/kernel_launcher.h"
#include "device/memory_pool.h"
#include "nccl/call.h"
#include "nccl/communicator.h"
#include "nccl/packing.h"

namespace hvdtune {

enum class GpuBits {
  kNccl,   // what NCCL's reduction gives: depends on sizes, algorithms and its version
  kExact,  // those of the reduction on processors, see collective/reduce/reduce.h
};

// How the ranks of a set are spread over hosts: the order of a reduction.
struct GpuOrder {
  std::vector<int> ranks;  // host after host
  std::vector<uint32_t> host_sizes;
};

// How much of a bucket a HostChunk has at most: of a large one, a chunk can be with NCCL while
// another is between hosts.
inline constexpr size_t kHostChunkBytes = size_t{8} << 20;
inline size_t host_chunk_elements(DType dtype) { return kHostChunkBytes / travelling_bytes(dtype); }

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
  void allreduce(const GpuCall& call);
  void allreduce_in_place(const GpuCall& call);
  void reduce_run(const GpuCall& call, const PackedRun& run, uint8_t* packed);
  void pack(const GpuCall& call, const PackedRun& run, uint8_t* packed);
  void unpack(const GpuCall& call, const PackedRun& run, const uint8_t* packed, size_t ranks);
  void reduce_on_host(const GpuCall& call);
  void gather_on_host(const GpuCall& call);
  size_t slice_of(const PackedRun& run) const { return aligned((run.count + size() - 1) / size()); }
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
