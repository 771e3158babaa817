#include "nccl/collectives.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// How much of a bucket is packed at a time.
constexpr size_t kChunkBytes = size_t{64} << 20;
// Tensors begin at a multiple of it, so that copies are of 16 bytes each.
constexpr size_t kAligned = 16;

bool is_floating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

// Integers that travel as what they are added up in.
bool is_narrow(DType dtype) {
  return dtype == DType::kUint8 || dtype == DType::kInt8 || dtype == DType::kInt16 ||
         dtype == DType::kUint16;
}

size_t travelling_bytes(DType dtype) { return is_narrow(dtype) ? 4 : size_of(dtype); }

NcclType type_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
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

// A sum of bools is "or", their product "and".
ReduceOp folded(DType dtype, ReduceOp op) {
  if (dtype != DType::kBool) return op;
  return op == ReduceOp::kMin || op == ReduceOp::kProduct ? ReduceOp::kMin : ReduceOp::kMax;
}

NcclOp op_of(const GpuCall& call) {
  switch (folded(call.dtype, call.reduce_op)) {
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    case ReduceOp::kProduct:
      return NcclOp::kProduct;
    case ReduceOp::kAverage:
      // Integers are divided once, as on processors.
      return is_floating(call.dtype) ? NcclOp::kAverage : NcclOp::kSum;
    default:
      return NcclOp::kSum;
  }
}

// Of what NCCL has reduced.
int divisor_of(const GpuCall& call, size_t ranks) {
  const bool divides = call.reduce_op == ReduceOp::kAverage && !is_floating(call.dtype);
  return divides ? static_cast<int>(ranks) : 1;
}

// Whether elements change on their way to NCCL or from it.
bool has_arithmetic(const GpuCall& call) {
  return is_narrow(call.dtype) || call.prescale != 1.0 || call.postscale != 1.0 ||
         (call.reduce_op == ReduceOp::kAverage && !is_floating(call.dtype));
}

// The identity element in the type in which it travels.
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

size_t aligned(size_t count) { return (count + kAligned - 1) / kAligned * kAligned; }

Piece piece(const void* address, size_t begin, size_t count) {
  return {cuda_pointer(address), begin, count};
}

}  // namespace

// Elements [begin, begin + count) of a bucket, of which each tensor begins at an aligned place.
struct GpuCollectives::Run {
  std::vector<Piece> inputs;
  std::vector<Piece> outputs;
  std::vector<Piece> absent;
  size_t count = 0;

  Run(const GpuCall& call, size_t begin, size_t most) {
    size_t at = 0;
    const size_t element = size_of(call.dtype);
    for (const GpuTensor& tensor : call.tensors) {
      const size_t from = std::max(at, begin);
      const size_t to = std::min(at + tensor.count, begin + most);
      if (from < to) {
        const size_t skipped = (from - at) * element;
        if (tensor.input == nullptr) {
          absent.push_back(piece(nullptr, from - begin, to - from));
        } else {
          inputs.push_back(piece(tensor.input + skipped, from - begin, to - from));
          outputs.push_back(piece(tensor.output + skipped, from - begin, to - from));
        }
      }
      at += aligned(tensor.count);
    }
    count = std::min(at - std::min(at, begin), most);
  }
};

namespace {

std::vector<Piece> in_bytes(std::vector<Piece> pieces, size_t element) {
  for (Piece& piece : pieces) {
    piece.begin *= element;
    piece.count *= element;
  }
  return pieces;
}

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
      throw Error(ErrorCode::kInternal, "NCCL does not carry out " + std::string(name_of(call.op)));
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

// A single tensor that NCCL can read and write itself is not copied; all ranks know whether it is.
void GpuCollectives::allreduce(const GpuCall& call) {
  const bool exact = bits_ == GpuBits::kExact;
  const size_t count = call.tensors.size() == 1 ? call.tensors[0].count : 0;
  if (!exact && count > 0 && !has_arithmetic(call)) {
    const GpuTensor& tensor = call.tensors[0];
    const bool absent = tensor.input == nullptr;
    const auto spare = absent ? take(count * size_of(call.dtype)) : nullptr;
    if (spare) {
      kernels_.fill(spare->get(), count, size_of(call.dtype), call.identity, stream_);
    }
    const uint8_t* input = absent ? spare->get() : tensor.input;
    uint8_t* output = absent ? spare->get() : tensor.output;
    return comm_->issue("ncclAllReduce", [&](const NcclLibrary& nccl, NcclComm comm) {
      return nccl.all_reduce(input, output, count, type_of(call.dtype), op_of(call), comm, stream_);
    });
  }
  const size_t element = exact ? size_of(call.dtype) : travelling_bytes(call.dtype);
  const size_t most = kChunkBytes / element;
  for (size_t at = 0;; at += most) {
    const Run run(call, at, most);
    if (run.count == 0) return;
    // All ranks have slices of one size.
    const size_t room = exact ? (run.count / size() + 1 + kAligned) * size() : run.count;
    const auto packed = take(room * element);
    reduce_run(call, run, packed->get(), run.count);
  }
}

void GpuCollectives::reduce_run(const GpuCall& call, const Run& run, uint8_t* packed,
                                size_t count) {
  const bool exact = bits_ == GpuBits::kExact;
  const bool arithmetic = !exact && has_arithmetic(call);
  const size_t element = exact ? size_of(call.dtype) : travelling_bytes(call.dtype);
  if (arithmetic) {
    kernels_.pack(call.dtype, run.inputs, packed, call.prescale, stream_);
  } else {
    kernels_.gather(in_bytes(run.inputs, element), packed, stream_);
  }
  for (const Piece& absent : run.absent) {
    kernels_.fill(packed + absent.begin * element, absent.count, element,
                  exact ? call.identity : travelling_identity(call), stream_);
  }
  if (exact) {
    allreduce_exactly(call, packed, count);
  } else {
    comm_->issue("ncclAllReduce", [&](const NcclLibrary& nccl, NcclComm comm) {
      return nccl.all_reduce(packed, packed, count, type_of(call.dtype), op_of(call), comm,
                             stream_);
    });
  }
  if (arithmetic) {
    kernels_.unpack(call.dtype, run.outputs, packed, divisor_of(call, size()), call.postscale,
                    stream_);
  } else {
    kernels_.scatter(in_bytes(run.outputs, element), packed, stream_);
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
      return nccl.reduce_scatter(from, to, most, type_of(call.dtype), op_of(call), comm, stream_);
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
      inputs.push_back(piece(tensor.input + at * size_of(call.dtype), rank * most, counts[rank]));
    }
    at += counts[rank];
  }
  uint8_t* own = packed->get() + self() * most * element;
  std::vector<Piece> outputs;
  if (counts[self()] > 0) outputs.push_back(piece(tensor.output, 0, counts[self()]));
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
