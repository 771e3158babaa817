// The two steps of an allreduce that NCCL carries out within a host, before and after somebody else
// combines the hosts' sums: each rank has a share of them in between, in the host's memory.
#include <algorithm>

#include "nccl/collectives.h"

namespace hvdtune {

// All ranks of the host have slices of one size, of which the last may lie behind the chunk's end.
void GpuCollectives::reduce_on_host(const GpuCall& call) {
  HostChunk& chunk = *call.chunk;
  const PackedRun run(call, chunk.begin, host_chunk_elements(call.dtype));
  const size_t element = travelling_bytes(call.dtype);
  const size_t slice = slice_of(run);
  chunk.packed = pool_.take(slice * size() * element);
  uint8_t* packed = chunk.packed->get();
  uint8_t* own = packed + self() * slice * element;
  pack(call, run, packed);
  comm_->issue("ncclReduceScatter", [&](const NcclLibrary& nccl, NcclComm comm) {
    return nccl.reduce_scatter(packed, own, slice, nccl_type(call.dtype), nccl_op(call), comm,
                               stream_);
  });
  chunk.count = std::min(slice, run.count - std::min(run.count, self() * slice));
  chunk.share = pool_.take_pinned(chunk.count * element);
  const CudaDriver& driver = gpu_->driver();
  driver.check(
      driver.copy_to_host(chunk.share->get(), cuda_pointer(own), chunk.count * element, stream_),
      "cuMemcpyDtoHAsync");
}

void GpuCollectives::gather_on_host(const GpuCall& call) {
  const HostChunk& chunk = *call.chunk;
  const PackedRun run(call, chunk.begin, host_chunk_elements(call.dtype));
  const size_t element = travelling_bytes(call.dtype);
  const size_t slice_bytes = slice_of(run) * element;
  uint8_t* packed = chunk.packed->get();
  uint8_t* own = packed + self() * slice_bytes;
  const CudaDriver& driver = gpu_->driver();
  driver.check(
      driver.copy_to_device(cuda_pointer(own), chunk.share->get(), chunk.count * element, stream_),
      "cuMemcpyHtoDAsync");
  comm_->issue("ncclAllGather", [&](const NcclLibrary& nccl, NcclComm comm) {
    return nccl.all_gather(own, packed, slice_bytes, NcclType::kUint8, comm, stream_);
  });
  unpack(call, run, packed, size() * chunk.hosts);
}

}  // namespace hvdtune
