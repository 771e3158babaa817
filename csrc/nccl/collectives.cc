#include "nccl/collectives.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// How much of a bucket is packed at a time.
constexpr size_t kChunkBytes = size_t{64} << 20;

}  // namespace

GpuCollectives::GpuCollectives(std::unique_ptr<NcclCommunicator> comm,
                               std::shared_ptr<const Gpu> gpu, CudaStream stream,
                               GpuMemoryPool& pool, KernelLauncher& kernels, GpuOrder order,
                               GpuBits bits)
    : comm_(std::move(comm)),
      gpu_(std::move(gpu)),
      stream_(stream),
      pool_(pool),
      kernels_(kernels),
      order_(std::move(order)),
      places_(order_.ranks.size()),
      bits_(bits) {
  for (size_t i = 0; i < order_.ranks.size(); ++i) {
    places_[static_cast<size_t>(order_.ranks[i])] = i;
  }
  if (bits_ != GpuBits::kExact) return;
  const size_t bytes = order_.host_sizes.size() * sizeof(uint32_t);
  host_sizes_ = pool_.take(bytes);
  const CudaDriver& driver = gpu_->driver();
  driver.check(driver.copy_to_device(cuda_pointer(host_sizes_->get()), order_.host_sizes.data(),
                                     bytes, stream_),
               "cuMemcpyHtoDAsync");
}

void GpuCollectives::enqueue(const GpuCall& call) {
  switch (call.op) {
    case OpType::kAllreduce:
      return allreduce(call);
    case OpType::kBroadcast:
      return broadcast(call);
    case OpType::kAllgather:
      return allgather(call);
    case OpType::kAlltoall:
      return alltoall(call);
    case OpType::kReducescatter:
      return bits_ == GpuBits::kExact ? reducescatter_exactly(call) : reducescatter(call);
    default:
      throw Error(ErrorCode::kInternal, "NCCL does not support " + std::string(name_of(call.op)));
  }
}

void GpuCollectives::capture(const GpuCall& call, CudaStream stream, GraphOwners::Owners& owners) {
  const CudaStream own = std::exchange(stream_, stream);
  owners_ = &owners;
  try {
    enqueue(call);
  } catch (...) {
    owners_ = nullptr;
    stream_ = own;
    throw;
  }
  owners_ = nullptr;
  stream_ = own;
  if (host_sizes_) owners.push_back(host_sizes_);
  owners.push_back(in_graphs_);
}

// Memory that is used again once the pointer is gone, unless a graph keeps it.
std::shared_ptr<GpuMemory> GpuCollectives::take(size_t bytes) {
  std::shared_ptr<GpuMemory> memory = pool_.take(bytes);
  if (owners_ != nullptr) owners_->push_back(memory);
  return memory;
}

void GpuCollectives::allreduce(const GpuCall& call) {
  if (call.step == GpuStep::kReduceOnHost) return reduce_on_host(call);
  if (call.step == GpuStep::kGatherOnHost) return gather_on_host(call);
  const bool exact = bits_ == GpuBits::kExact;
  const size_t count = call.tensors.size() == 1 ? call.tensors[0].count : 0;
  if (!exact && count > 0 && !has_arithmetic(call)) return allreduce_in_place(call);
  const size_t element = exact ? size_of(call.dtype) : travelling_bytes(call.dtype);
  const size_t most = kChunkBytes / element;
  for (size_t at = 0;; at += most) {
    const PackedRun run(call, at, most);
    if (run.count == 0) return;
    // All ranks have slices of one size.
    const size_t room = exact ? (run.count / size() + 1 + kAligned) * size() : run.count;
    const auto packed = take(room * element);
    reduce_run(call, run, packed->get());
  }
}

// A single tensor that NCCL can read and write itself is not copied; all ranks know whether it is.
void GpuCollectives::allreduce_in_place(const GpuCall& call) {
  const GpuTensor& tensor = call.tensors[0];
  const bool absent = tensor.input == nullptr;
  const auto spare = absent ? take(tensor.count * size_of(call.dtype)) : nullptr;
  if (spare) {
    kernels_.fill(spare->get(), tensor.count, size_of(call.dtype), call.identity, stream_);
  }
  const uint8_t* input = absent ? spare->get() : tensor.input;
  uint8_t* output = absent ? spare->get() : tensor.output;
  comm_->issue("ncclAllReduce", [&](const NcclLibrary& nccl, NcclComm comm) {
    return nccl.all_reduce(input, output, tensor.count, nccl_type(call.dtype), nccl_op(call), comm,
                           stream_);
  });
}

void GpuCollectives::reduce_run(const GpuCall& call, const PackedRun& run, uint8_t* packed) {
  pack(call, run, packed);
  if (bits_ == GpuBits::kExact) {
    allreduce_exactly(call, packed, run.count);
  } else {
    comm_->issue("ncclAllReduce", [&](const NcclLibrary& nccl, NcclComm comm) {
      return nccl.all_reduce(packed, packed, run.count, nccl_type(call.dtype), nccl_op(call), comm,
                             stream_);
    });
  }
  unpack(call, run, packed, size());
}

// In exact mode the reduction scales.
void GpuCollectives::pack(const GpuCall& call, const PackedRun& run, uint8_t* packed) {
  const bool exact = bits_ == GpuBits::kExact;
  const size_t element = exact ? size_of(call.dtype) : travelling_bytes(call.dtype);
  if (!exact && has_arithmetic(call)) {
    kernels_.pack(call.dtype, run.inputs, packed, call.prescale, stream_);
  } else {
    kernels_.gather(in_bytes(run.inputs, element), packed, stream_);
  }
  for (const Piece& absent : run.absent) {
    kernels_.fill(packed + absent.begin * element, absent.count, element,
                  exact ? call.identity : travelling_identity(call), stream_);
  }
}

// Unpacks the result of a reduction over `ranks`.
void GpuCollectives::unpack(const GpuCall& call, const PackedRun& run, const uint8_t* packed,
                            size_t ranks) {
  if (bits_ != GpuBits::kExact && has_arithmetic(call)) {
    kernels_.unpack(call.dtype, run.outputs, packed, divisor_of(call, ranks), call.postscale,
                    stream_);
  } else {
    kernels_.scatter(in_bytes(run.outputs, size_of(call.dtype)), packed, stream_);
  }
}

GpuReduction GpuCollectives::reduction_of(const GpuCall& call) const {
  const int divisor = call.reduce_op == ReduceOp::kAverage ? comm_->size() : 1;
  return {call.dtype,
          folded(call.dtype, call.reduce_op),
          call.prescale,
          call.postscale,
          divisor,
          host_sizes_->get(),
          static_cast<uint32_t>(order_.host_sizes.size())};
}

// Each rank gets all contributions to its slice, adds them up in their order, and gives the sum to
// all: NCCL only moves bytes.
void GpuCollectives::allreduce_exactly(const GpuCall& call, uint8_t* packed, size_t count) {
  const size_t element = size_of(call.dtype);
  const size_t slice = aligned((count + size() - 1) / size());
  const size_t slice_bytes = slice * element;
  const auto contributions = take(slice_bytes * size());
  comm_->issue_group("an exchange of slices", [&](const NcclLibrary& nccl, NcclComm comm) {
    for (size_t peer = 0; peer < size(); ++peer) {
      const auto rank = static_cast<int>(peer);
      comm_->check(nccl.send(packed + peer * slice_bytes, slice_bytes, NcclType::kUint8, rank, comm,
                             stream_),
                   "ncclSend");
      comm_->check(nccl.recv(contributions->get() + places_[peer] * slice_bytes, slice_bytes,
                             NcclType::kUint8, rank, comm, stream_),
                   "ncclRecv");
    }
  });
  uint8_t* own = packed + self() * slice_bytes;
  kernels_.reduce(reduction_of(call), contributions->get(), slice, slice, own, stream_);
  comm_->issue("ncclAllGather", [&](const NcclLibrary& nccl, NcclComm comm) {
    return nccl.all_gather(own, packed, slice_bytes, NcclType::kUint8, comm, stream_);
  });
}

// NCCL gives all ranks blocks of one size: smaller ones are padded.
void GpuCollectives::reducescatter(const GpuCall& call) {
  const GpuTensor& tensor = call.tensors[0];
  const std::vector<size_t>& counts = call.to_ranks;
  const size_t most = *std::ranges::max_element(counts);
  if (most == 0) return;
  const bool even = std::ranges::all_of(counts, [&](size_t count) { return count == most; });
  const auto issue = [&](const uint8_t* from, uint8_t* to) {
    comm_->issue("ncclReduceScatter", [&](const NcclLibrary& nccl, NcclComm comm) {
      return nccl.reduce_scatter(from, to, most, nccl_type(call.dtype), nccl_op(call), comm,
                                 stream_);
    });
  };
  const bool arithmetic = has_arithmetic(call);
  if (even && !arithmetic) return issue(tensor.input, tensor.output);
  const size_t element = travelling_bytes(call.dtype);
  const auto packed = take(size() * most * element);
  std::vector<Piece> inputs;
  size_t at = 0;
  for (size_t rank = 0; rank < size(); ++rank) {
    if (counts[rank] > 0) {
      inputs.push_back(
          piece_at(tensor.input + at * size_of(call.dtype), rank * most, counts[rank]));
    }
    at += counts[rank];
  }
  uint8_t* own = packed->get() + self() * most * element;
  std::vector<Piece> outputs;
  if (counts[self()] > 0) outputs.push_back(piece_at(tensor.output, 0, counts[self()]));
  if (arithmetic) {
    kernels_.pack(call.dtype, inputs, packed->get(), call.prescale, stream_);
    issue(packed->get(), own);
    kernels_.unpack(call.dtype, outputs, own, divisor_of(call, size()), call.postscale, stream_);
  } else {
    kernels_.gather(in_bytes(inputs, element), packed->get(), stream_);
    issue(packed->get(), own);
    kernels_.scatter(in_bytes(outputs, element), own, stream_);
  }
}

void GpuCollectives::reducescatter_exactly(const GpuCall& call) {
  const GpuTensor& tensor = call.tensors[0];
  const std::vector<size_t>& counts = call.to_ranks;
  const size_t element = size_of(call.dtype);
  const size_t own = counts[self()];
  const auto contributions = take(own * element * size());
  comm_->issue_group("an exchange of blocks", [&](const NcclLibrary& nccl, NcclComm comm) {
    size_t at = 0;
    for (size_t peer = 0; peer < size(); ++peer) {
      const auto rank = static_cast<int>(peer);
      if (counts[peer] > 0) {
        comm_->check(nccl.send(tensor.input + at * element, counts[peer] * element,
                               NcclType::kUint8, rank, comm, stream_),
                     "ncclSend");
      }
      if (own > 0) {
        comm_->check(nccl.recv(contributions->get() + places_[peer] * own * element, own * element,
                               NcclType::kUint8, rank, comm, stream_),
                     "ncclRecv");
      }
      at += counts[peer];
    }
  });
  if (own > 0) {
    kernels_.reduce(reduction_of(call), contributions->get(), own, own, tensor.output, stream_);
  }
}

void GpuCollectives::broadcast(const GpuCall& call) {
  const GpuTensor& tensor = call.tensors[0];
  const size_t bytes = tensor.count * size_of(call.dtype);
  if (bytes == 0) return;
  const auto spare = tensor.output == nullptr ? take(bytes) : nullptr;
  uint8_t* output = spare ? spare->get() : tensor.output;
  const uint8_t* input = spare ? output : tensor.input;
  comm_->issue("ncclBroadcast", [&](const NcclLibrary& nccl, NcclComm comm) {
    return nccl.broadcast(input, output, bytes, NcclType::kUint8, call.root, comm, stream_);
  });
}

void GpuCollectives::allgather(const GpuCall& call) {
  const GpuTensor& tensor = call.tensors[0];
  const std::vector<size_t>& bytes = call.from_ranks;
  const size_t total = std::accumulate(bytes.begin(), bytes.end(), size_t{0});
  if (total == 0) return;
  const bool even = std::ranges::all_of(bytes, [&](size_t count) { return count == bytes[0]; });
  if (even) {
    return comm_->issue("ncclAllGather", [&](const NcclLibrary& nccl, NcclComm comm) {
      return nccl.all_gather(tensor.input, tensor.output, bytes[0], NcclType::kUint8, comm,
                             stream_);
    });
  }
  comm_->issue_group("ncclBroadcast of each rank's rows",
                     [&](const NcclLibrary& nccl, NcclComm comm) {
                       uint8_t* at = tensor.output;
                       for (size_t root = 0; root < size(); ++root) {
                         const uint8_t* from = root == self() ? tensor.input : at;
                         if (bytes[root] > 0) {
                           comm_->check(nccl.broadcast(from, at, bytes[root], NcclType::kUint8,
                                                       static_cast<int>(root), comm, stream_),
                                        "ncclBroadcast");
                         }
                         at += bytes[root];
                       }
                     });
}

void GpuCollectives::alltoall(const GpuCall& call) {
  const GpuTensor& tensor = call.tensors[0];
  comm_->issue_group("an alltoall", [&](const NcclLibrary& nccl, NcclComm comm) {
    const uint8_t* from = tensor.input;
    uint8_t* to = tensor.output;
    for (size_t peer = 0; peer < size(); ++peer) {
      const auto rank = static_cast<int>(peer);
      if (call.to_ranks[peer] > 0) {
        comm_->check(nccl.send(from, call.to_ranks[peer], NcclType::kUint8, rank, comm, stream_),
                     "ncclSend");
      }
      if (call.from_ranks[peer] > 0) {
        comm_->check(nccl.recv(to, call.from_ranks[peer], NcclType::kUint8, rank, comm, stream_),
                     "ncclRecv");
      }
      from += call.to_ranks[peer];
      to += call.from_ranks[peer];
    }
  });
}

}  // namespace hvdtune
