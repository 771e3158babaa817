// What the executor gives to the thread that talks to NCCL.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "collective/allgather.h"
#include "collective/broadcast.h"
#include "collective/group_shape.h"
#include "collective/reduce/identity_element.h"
#include "runtime/executor.h"
#include "runtime/gpu/split_allreduce.h"

namespace hvdtune {
namespace {

size_t elements_of(const TensorSpec& tensor) {
  return static_cast<size_t>(element_count(tensor.shape));
}

size_t row_elements(const TensorSpec& tensor) {
  TensorSpec row{tensor.dtype, {tensor.shape.begin() + 1, tensor.shape.end()}};
  return elements_of(row);
}

uint64_t identity_of(DType dtype, ReduceOp op) {
  std::array<uint8_t, sizeof(uint64_t)> bytes{};
  fill_identity(dtype, op, bytes.data(), 1);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), sizeof bits);
  return bits;
}

GpuCall call_of(const Request& request, DType dtype) {
  GpuCall call;
  call.op = request.op;
  call.dtype = dtype;
  call.reduce_op = request.reduce_op;
  call.prescale = request.prescale;
  call.postscale = request.postscale;
  if (row_of(request.op).reduces) call.identity = identity_of(dtype, request.reduce_op);
  return call;
}

GpuTensor tensor_of(const Operation* own, size_t index, const TensorSpec& spec) {
  GpuTensor tensor;
  tensor.count = elements_of(spec);
  if (own == nullptr) return tensor;
  tensor.input = own->memory[index].input;
  tensor.output = own->memory[index].output;
  return tensor;
}

}  // namespace

// The collectives of one bucket, as the GPU's thread carries them out.
struct Executor::GpuBucket {
  Executor& self;
  std::span<const Member> members;
  GpuTask& task;
  const Response& response = *members[0].response;
  const Request& request = response.request;
  Operation* own = members[0].operation.get();  // null: this rank has joined

  void add_calls() const;
  void allreduce() const;
  void broadcast() const;
  void allgather() const;
  void alltoall() const;
  void reducescatter() const;
  uint8_t* add_result(const TensorSpec& tensor, int64_t rows) const;
};

void Executor::GpuBucket::add_calls() const {
  switch (request.op) {
    case OpType::kAllreduce:
      return allreduce();
    case OpType::kBroadcast:
      return broadcast();
    case OpType::kAllgather:
      return allgather();
    case OpType::kAlltoall:
      return alltoall();
    case OpType::kReducescatter:
      return reducescatter();
    default:
      throw Error(ErrorCode::kInternal,
                  std::string(name_of(request.op)) + " does not support GPU tensors");
  }
}

// A bucket is of one dtype, unless it is a group of several.
void Executor::GpuBucket::allreduce() const {
  for (const Member& member : members) {
    const std::vector<TensorSpec>& specs = member.response->request.tensors;
    for (size_t i = 0; i < specs.size(); ++i) {
      const DType dtype = specs[i].dtype;
      auto call = std::ranges::find(task.calls, dtype, &GpuCall::dtype);
      if (call == task.calls.end()) call = task.calls.insert(call, call_of(request, dtype));
      if (elements_of(specs[i]) == 0) continue;
      call->tensors.push_back(tensor_of(member.operation.get(), i, specs[i]));
    }
  }
}

void Executor::GpuBucket::broadcast() const {
  const std::vector<int>& ranks = *self.sets_.find(request.process_set);
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    GpuCall call = call_of(request, request.tensors[i].dtype);
    call.root = static_cast<int>(std::ranges::find(ranks, request.root) - ranks.begin());
    call.tensors = {tensor_of(own, i, request.tensors[i])};
    task.calls.push_back(std::move(call));
  }
}

// Memory of hvdtune's own: where the result is to go is known only to the caller.
uint8_t* Executor::GpuBucket::add_result(const TensorSpec& tensor, int64_t rows) const {
  const size_t bytes = static_cast<size_t>(rows) * row_elements(tensor) * size_of(tensor.dtype);
  task.memory.push_back(self.gpu_->take(bytes));
  if (own != nullptr) {
    Result result;
    result.dtype = tensor.dtype;
    result.shape = tensor.shape;
    result.shape[0] = rows;
    result.gpu = task.memory.back();
    own->results.push_back(std::move(result));
  }
  return task.memory.back()->get();
}

void Executor::GpuBucket::allgather() const {
  const auto n = static_cast<size_t>(task.size);
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& tensor = request.tensors[i];
    const size_t row_bytes = row_elements(tensor) * size_of(tensor.dtype);
    const auto dims = std::span(response.first_dims).subspan(i * n, n);
    GpuCall call = call_of(request, tensor.dtype);
    for (const int64_t rows : dims) {
      call.from_ranks.push_back(static_cast<size_t>(rows) * row_bytes);
    }
    call.tensors = {tensor_of(own, i, tensor)};
    call.tensors[0].output =
        add_result(tensor, std::accumulate(dims.begin(), dims.end(), int64_t{0}));
    task.calls.push_back(std::move(call));
  }
}

void Executor::GpuBucket::alltoall() const {
  const TensorSpec& tensor = own->request->tensors[0];
  const size_t row_bytes = row_elements(tensor) * size_of(tensor.dtype);
  const auto n = static_cast<size_t>(task.size);
  GpuCall call = call_of(request, tensor.dtype);
  for (size_t peer = 0; peer < n; ++peer) {
    const int64_t from_peer = response.first_dims[peer * n + static_cast<size_t>(task.rank)];
    call.to_ranks.push_back(static_cast<size_t>(own->request->splits[peer]) * row_bytes);
    call.from_ranks.push_back(static_cast<size_t>(from_peer) * row_bytes);
    own->numbers.push_back(from_peer);
  }
  const int64_t rows = std::accumulate(own->numbers.begin(), own->numbers.end(), int64_t{0});
  call.tensors = {tensor_of(own, 0, tensor)};
  call.tensors[0].output = add_result(tensor, rows);
  task.calls.push_back(std::move(call));
}

// The first ranks get one row more where rows cannot be divided evenly.
void Executor::GpuBucket::reducescatter() const {
  const auto n = static_cast<size_t>(task.size);
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& tensor = request.tensors[i];
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    GpuCall call = call_of(request, tensor.dtype);
    for (size_t rank = 0; rank < n; ++rank) {
      call.to_ranks.push_back((rows / n + (rank < rows % n ? 1 : 0)) * row_elements(tensor));
    }
    call.tensors = {tensor_of(own, i, tensor)};
    task.calls.push_back(std::move(call));
  }
}

void Executor::hand_to_gpu(std::span<const Member> members, const Setting& setting,
                           CutReason reason) {
  const Request& request = members[0].response->request;
  if (gpu_ == nullptr) {
    throw Error(ErrorCode::kUsage,
                "the other ranks have tensors on GPUs, but this rank, which has joined, has no GPU "
                "operations; set HVDTUNE_GPU_OPERATIONS to the same value on all ranks");
  }
  Group& group = group_of(request.process_set);
  // A CUDA graph cannot contain the host steps of a split allreduce.
  const bool splits = request.op == OpType::kAllreduce && gpu_->bits() == GpuBits::kNccl &&
                      !request.in_graph && splits_at_hosts(shape_of(group), setting);
  GpuTask task = splits ? task_within_host(group) : task_for_set(group);
  task.process_set = request.process_set;
  task.within_host = splits;
  task.in_graph = request.in_graph;
  if (!gpu_->has_communicator(task.process_set, splits)) {
    task.id = share_id(request.process_set, splits, setting);
  }
  GpuBucket{*this, members, task}.add_calls();
  for (const Member& member : members) {
    if (member.operation) task.operations.push_back(member.operation);
  }
  if (recorder_.enabled() && !task.in_graph) task.records = records_of(members, reason);
  if (splits) {
    split_allreduce(*gpu_, column_of(request.process_set), std::move(task), setting);
  } else {
    gpu_->enqueue(std::move(task));
  }
}

GpuTask Executor::task_for_set(const Group& group) {
  GpuTask task;
  task.size = group.size();
  task.rank = group.rank();
  task.order.ranks.assign(group.canonical_ranks().begin(), group.canonical_ranks().end());
  for (const int size : group.host_sizes()) {
    task.order.host_sizes.push_back(static_cast<uint32_t>(size));
  }
  return task;
}

GpuTask Executor::task_within_host(const Group& group) {
  GpuTask task;
  task.size = group.topology().local_size;
  task.rank = group.topology().local_rank;
  return task;
}

// The set's first rank makes it, or that of each host for the ranks of its host, and the others get
// it over hvdtune's own links. Whether a rank splits depends on its bits, so they are compared in
// the one exchange that all ranks take part in.
NcclId Executor::share_id(uint32_t process_set, bool within_host, const Setting& setting) {
  struct Shared {
    NcclId id;
    GpuBits bits;
  };
  Group& group = group_of(process_set);
  const Topology& topology = group.topology();
  const int maker = within_host ? topology.hosts[static_cast<size_t>(topology.cross_rank)][0] : 0;
  Shared own{{}, gpu_->bits()};
  if (group.rank() == maker) own.id = gpu_->make_id();
  std::vector<Shared> all(static_cast<size_t>(group.size()));
  const std::vector<size_t> blocks(all.size(), sizeof(Shared));
  hvdtune::allgather(group, reinterpret_cast<const uint8_t*>(&own),
                     reinterpret_cast<uint8_t*>(all.data()), blocks, setting);
  const auto other =
      std::ranges::find_if(all, [&](const Shared& shared) { return shared.bits != gpu_->bits(); });
  if (other != all.end()) {
    const int rank = (*sets_.find(process_set))[static_cast<size_t>(other - all.begin())];
    const bool exact_here = gpu_->bits() == GpuBits::kExact;
    throw Error(ErrorCode::kUsage,
                std::string("HVDTUNE_GPU_BITS differs between ranks: it is ") +
                    (exact_here ? "exact here and nccl" : "nccl here and exact") + " on rank " +
                    std::to_string(rank) + "; set the same value on all ranks");
  }
  return all[static_cast<size_t>(maker)].id;
}

// The ranks of the set that have this one's place on their hosts, host after host. REQUIRES: all
// hosts have equally many.
Group& Executor::column_of(uint32_t process_set) {
  const auto known = columns_.find(process_set);
  if (known != columns_.end()) return known->second;
  const Topology& topology = group_of(process_set).topology();
  const std::vector<int>& ranks = *sets_.find(process_set);
  std::vector<int> column;
  for (const std::vector<int>& host : topology.hosts) {
    const int rank = host[static_cast<size_t>(topology.local_rank)];
    column.push_back(ranks[static_cast<size_t>(rank)]);
  }
  Observer& observer = *this;
  return columns_
      .try_emplace(process_set, mesh_, column, scratch_, stop_, observer, spins_for(mesh_))
      .first->second;
}

std::vector<GpuRecord> Executor::records_of(std::span<const Member> members, CutReason reason) {
  std::vector<GpuRecord> records;
  size_t total = 0;
  for (const Member& member : members) {
    const Request& request = member.response->request;
    const size_t bytes = bytes_of(request);
    total += bytes;
    records.push_back({event_of(request.op), member.name, member.seq, bucket_, saturated(bytes)});
  }
  records.push_back({EventKind::kBucket, reason_id(reason), static_cast<uint32_t>(members.size()),
                     bucket_, saturated(total)});
  return records;
}

}  // namespace hvdtune
