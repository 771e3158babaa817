#include "mpi/backend.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace hvdtune {
namespace {

// What one call of MPI moves, for all ranks together.
constexpr size_t kChunkBytes = size_t{8} << 20;

enum Area : size_t { kFirst, kSecond };

int type_of(const Reduction& reduction) {
  switch (reduction.dtype) {
    case DType::kInt64:
      return HVDTUNE_MPI_INT64;
    case DType::kFloat64:
      return HVDTUNE_MPI_FLOAT64;
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat32:
      return HVDTUNE_MPI_FLOAT32;
    default:
      return HVDTUNE_MPI_INT32;
  }
}

int op_of(const Reduction& reduction) {
  // A sum of bools is "or", their product "and".
  const bool logical = reduction.dtype == DType::kBool;
  switch (reduction.op) {
    case ReduceOp::kMin:
      return HVDTUNE_MPI_MIN;
    case ReduceOp::kMax:
      return HVDTUNE_MPI_MAX;
    case ReduceOp::kProduct:
      return logical ? HVDTUNE_MPI_MIN : HVDTUNE_MPI_PRODUCT;
    default:
      return logical ? HVDTUNE_MPI_MAX : HVDTUNE_MPI_SUM;
  }
}

bool offers(ReduceOp op) {
  return op == ReduceOp::kSum || op == ReduceOp::kAverage || op == ReduceOp::kMin ||
         op == ReduceOp::kMax || op == ReduceOp::kProduct;
}

// A slice of each rank's block, as it lies in a chunk.
struct Slices {
  std::vector<int> counts;
  std::vector<int> offsets;
  int total = 0;
};

// From `at` on, at most `most` of each block.
Slices slice(std::span<const size_t> blocks, size_t at, size_t most) {
  Slices slices;
  for (const size_t block : blocks) {
    const auto count = static_cast<int>(std::min(block - std::min(block, at), most));
    slices.counts.push_back(count);
    slices.offsets.push_back(slices.total);
    slices.total += count;
  }
  return slices;
}

// Calls visit(index, where the slice lies in the whole, its place in the chunk, its size).
template <typename Visit>
void each(const Slices& slices, std::span<const size_t> blocks, size_t at, Visit visit) {
  size_t begin = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto count = static_cast<size_t>(slices.counts[i]);
    if (count > 0) visit(i, begin + at, static_cast<size_t>(slices.offsets[i]), count);
    begin += blocks[i];
  }
}

size_t largest(std::span<const size_t> blocks) {
  return blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end());
}

// How much of a block fits in a chunk with as much of all others.
size_t share(std::span<const size_t> blocks, size_t unit = 1) {
  return std::max<size_t>(kChunkBytes / (blocks.size() * unit), 1);
}

// Everything goes through memory of the backend's own, a chunk at a time: that keeps MPI's counts
// small whatever the tensors' size, and when a rank dies in the middle, MPI may go on writing there
// while the caller's memory is free.
//
// MPI reduces in the accumulator type; scaling, averaging and rounding are done as in our own
// algorithms.
class MpiBackend final : public Backend {
 public:
  MpiBackend(std::unique_ptr<MpiCommunicator> comm, const StopSignal& stop)
      : comm_(std::move(comm)), stop_(stop), scratch_(std::make_unique<ScratchBuffers>()) {}

  bool run(Group& group, const CollectiveCall& call) override;

 private:
  struct Row {
    OpType op;
    void (MpiBackend::*function)(Group&, const CollectiveCall&);
  };
  static const Row kFunctions[];

  void allreduce(Group& group, const CollectiveCall& call);
  void allgather(Group& group, const CollectiveCall& call);
  void broadcast(Group& group, const CollectiveCall& call);
  void alltoall(Group& group, const CollectiveCall& call);
  void reducescatter(Group& group, const CollectiveCall& call);
  void barrier(Group& group, const CollectiveCall& call);

  // `start` begins a call of MPI's, which is `what`; comes back when it has ended.
  template <typename Start>
  void await(const char* what, Start start) {
    try {
      comm_->run(what, {Deadline::never(), &stop_}, start);
    } catch (...) {
      comm_->library()->keep(std::move(scratch_));
      throw;
    }
  }
  size_t largest_anywhere(std::span<const size_t> bytes);

  std::unique_ptr<MpiCommunicator> comm_;
  const StopSignal& stop_;
  std::unique_ptr<ScratchBuffers> scratch_;
};

constexpr MpiBackend::Row MpiBackend::kFunctions[] = {
    {OpType::kAllreduce, &MpiBackend::allreduce},
    {OpType::kBroadcast, &MpiBackend::broadcast},
    {OpType::kAllgather, &MpiBackend::allgather},
    {OpType::kBarrier, &MpiBackend::barrier},
    {OpType::kAlltoall, &MpiBackend::alltoall},
    {OpType::kReducescatter, &MpiBackend::reducescatter},
};

bool MpiBackend::run(Group& group, const CollectiveCall& call) {
  const auto found = std::ranges::find(kFunctions, call.op, &Row::op);
  if (found == std::end(kFunctions)) return false;
  if (row_of(call.op).reduces && !offers(call.reduction.op)) return false;
  (this->*found->function)(group, call);
  return true;
}

void MpiBackend::allreduce(Group& group, const CollectiveCall& call) {
  const Reduction& reduction = call.reduction;
  const Payload& payload = *call.payload;
  const size_t element = size_of(reduction.dtype);
  const size_t wide = accumulator_bytes(reduction);
  const size_t chunk = std::min(kChunkBytes / wide, payload.bytes() / element);
  uint8_t* packed = scratch_->take(kFirst, chunk * element);
  uint8_t* sums = scratch_->take(kSecond, chunk * wide);
  const size_t total = payload.bytes() / element;
  for (size_t at = 0; at < total; at += chunk) {
    const size_t count = std::min(chunk, total - at);
    const size_t bytes = count * element;
    group.observe(Phase::kPack, bytes, [&] {
      payload.pack(at * element, bytes, packed);
      reduce_host(reduction, std::array<const uint8_t*, 1>{packed}, sums, count);
    });
    group.observe(Phase::kExchange, count * wide, [&] {
      await("MPI_Iallreduce", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
        return mpi.allreduce(comm, sums, static_cast<int>(count), type_of(reduction),
                             op_of(reduction), request);
      });
    });
    group.observe(Phase::kUnpack, bytes, [&] {
      reduce_partials(reduction, std::array<uint8_t*, 1>{sums}, packed, count);
      payload.unpack(at * element, bytes, packed);
    });
  }
}

void MpiBackend::allgather(Group& group, const CollectiveCall& call) {
  const std::span<const size_t> block_bytes = call.from_ranks;
  const auto self = static_cast<size_t>(group.rank());
  const size_t most = share(block_bytes);
  for (size_t at = 0; at < largest(block_bytes); at += most) {
    const Slices slices = slice(block_bytes, at, most);
    const int own = slices.counts[self];
    uint8_t* sent = scratch_->take(kFirst, static_cast<size_t>(own));
    uint8_t* received = scratch_->take(kSecond, static_cast<size_t>(slices.total));
    if (own > 0) std::memcpy(sent, call.input + at, static_cast<size_t>(own));
    group.observe(Phase::kExchange, static_cast<size_t>(slices.total), [&] {
      await("MPI_Iallgatherv", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
        return mpi.allgatherv(comm, sent, own, received, slices.counts.data(),
                              slices.offsets.data(), request);
      });
    });
    each(slices, block_bytes, at, [&](size_t, size_t whole, size_t place, size_t count) {
      std::memcpy(call.output + whole, received + place, count);
    });
  }
}

void MpiBackend::broadcast(Group& group, const CollectiveCall& call) {
  uint8_t* chunk = scratch_->take(kFirst, std::min(call.bytes, kChunkBytes));
  for (size_t at = 0; at < call.bytes; at += kChunkBytes) {
    const size_t count = std::min(kChunkBytes, call.bytes - at);
    if (group.rank() == call.root) std::memcpy(chunk, call.input + at, count);
    group.observe(Phase::kExchange, count, [&] {
      await("MPI_Ibcast", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
        return mpi.bcast(comm, chunk, static_cast<int>(count), call.root, request);
      });
    });
    std::memcpy(call.output + at, chunk, count);
  }
}

// Only the two ranks of a pair know what goes between them, and all must make as many calls.
size_t MpiBackend::largest_anywhere(std::span<const size_t> bytes) {
  uint8_t* memory = scratch_->take(kFirst, sizeof(int64_t));
  int64_t most = static_cast<int64_t>(largest(bytes));
  std::memcpy(memory, &most, sizeof most);
  await("MPI_Iallreduce", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
    return mpi.allreduce(comm, memory, 1, HVDTUNE_MPI_INT64, HVDTUNE_MPI_MAX, request);
  });
  std::memcpy(&most, memory, sizeof most);
  return static_cast<size_t>(most);
}

void MpiBackend::alltoall(Group& group, const CollectiveCall& call) {
  const std::span<const size_t> send_bytes = call.to_ranks;
  const std::span<const size_t> recv_bytes = call.from_ranks;
  const size_t longest = largest_anywhere(send_bytes);
  const size_t most = share(send_bytes);
  for (size_t at = 0; at < longest; at += most) {
    const Slices out = slice(send_bytes, at, most);
    const Slices in = slice(recv_bytes, at, most);
    uint8_t* sent = scratch_->take(kFirst, static_cast<size_t>(out.total));
    uint8_t* received = scratch_->take(kSecond, static_cast<size_t>(in.total));
    each(out, send_bytes, at, [&](size_t, size_t whole, size_t place, size_t count) {
      std::memcpy(sent + place, call.input + whole, count);
    });
    group.observe(Phase::kExchange, static_cast<size_t>(out.total), [&] {
      await("MPI_Ialltoallv", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
        return mpi.alltoallv(comm, sent, out.counts.data(), out.offsets.data(), received,
                             in.counts.data(), in.offsets.data(), request);
      });
    });
    each(in, recv_bytes, at, [&](size_t, size_t whole, size_t place, size_t count) {
      std::memcpy(call.output + whole, received + place, count);
    });
  }
}

void MpiBackend::reducescatter(Group& group, const CollectiveCall& call) {
  const Reduction& reduction = call.reduction;
  const std::span<const size_t> counts = call.to_ranks;
  const size_t element = size_of(reduction.dtype);
  const size_t wide = accumulator_bytes(reduction);
  const auto self = static_cast<size_t>(group.rank());
  const size_t most = share(counts, wide);
  for (size_t at = 0; at < largest(counts); at += most) {
    const Slices slices = slice(counts, at, most);
    const auto own = static_cast<size_t>(slices.counts[self]);
    uint8_t* sent = scratch_->take(kFirst, static_cast<size_t>(slices.total) * wide);
    uint8_t* sums = scratch_->take(kSecond, own * wide);
    group.observe(Phase::kPack, static_cast<size_t>(slices.total) * element, [&] {
      each(slices, counts, at, [&](size_t, size_t whole, size_t place, size_t count) {
        reduce_host(reduction, std::array<const uint8_t*, 1>{call.input + whole * element},
                    sent + place * wide, count);
      });
    });
    group.observe(Phase::kExchange, static_cast<size_t>(slices.total) * wide, [&] {
      await("MPI_Ireduce_scatter", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
        return mpi.reduce_scatter(comm, sent, sums, slices.counts.data(), type_of(reduction),
                                  op_of(reduction), request);
      });
    });
    if (own > 0) {
      reduce_partials(reduction, std::array<uint8_t*, 1>{sums}, call.output + at * element, own);
    }
  }
}

void MpiBackend::barrier(Group& group, const CollectiveCall& /*call*/) {
  group.observe(Phase::kWait, 0, [&] {
    await("MPI_Ibarrier", [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
      return mpi.barrier(comm, request);
    });
  });
}

}  // namespace

std::unique_ptr<Backend> make_mpi_backend(std::unique_ptr<MpiCommunicator> comm,
                                          const StopSignal& stop) {
  return std::make_unique<MpiBackend>(std::move(comm), stop);
}

std::unique_ptr<Backend> MpiBackendSource::for_ranks(std::span<const int> world_ranks) {
  // The lowest rank tells apart sets that are made at the same time: they are disjoint.
  const int tag = *std::min_element(world_ranks.begin(), world_ranks.end());
  return make_mpi_backend(job_->subset(world_ranks, tag), stop_);
}

}  // namespace hvdtune
