#include "runtime/executor.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/failpoint.h"
#include "collective/adasum.h"
#include "collective/allgather.h"
#include "collective/allreduce/allreduce.h"
#include "collective/alltoall.h"
#include "collective/broadcast.h"
#include "collective/reduce/identity_element.h"
#include "collective/reducescatter.h"

namespace hvdtune {
namespace {

EventKind event_of(Phase phase) {
  using enum EventKind;
  static constexpr std::array kKinds = {kPack, kReduce, kExchange, kUnpack, kWait, kPeer};
  return kKinds[static_cast<size_t>(phase)];
}

// As in "float32[64,3]", for a group one after another.
std::string describe(const Request& request) {
  std::string text;
  for (const TensorSpec& tensor : request.tensors) {
    if (!text.empty()) text += ' ';
    text.append(name_of(tensor.dtype)).append("[");
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      text.append(i == 0 ? "" : ",").append(std::to_string(tensor.shape[i]));
    }
    text += ']';
  }
  return text;
}

// What one row of a tensor, seen along its first dimension, has.
size_t row_elements(const TensorSpec& tensor) {
  size_t count = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) count *= static_cast<size_t>(tensor.shape[i]);
  return count;
}

// A result of `rows` rows: in the caller's memory where that has its size, else uninitialised.
Result make_result(const TensorSpec& tensor, int64_t rows, const TensorMemory& memory) {
  Result result;
  result.dtype = tensor.dtype;
  result.shape = tensor.shape;
  result.shape[0] = rows;
  const size_t bytes = static_cast<size_t>(rows) * row_elements(tensor) * size_of(tensor.dtype);
  result.in_place = memory.output != nullptr && memory.output_bytes == bytes;
  if (!result.in_place) result.bytes = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  return result;
}

}  // namespace

Executor::Executor(const Services& services, BackendSource* backends, ResponseCache& cache,
                   const ProcessSets& sets, Change change)
    : mesh_(services.mesh),
      backends_(backends),
      stop_(services.stop),
      lease_(services.lease),
      table_(services.table),
      cache_(cache),
      sets_(sets),
      change_(std::move(change)),
      work_counter_(services.work_counter),
      recorder_(services.recorder),
      events_(services.events),
      gpu_(services.gpu) {}

void Executor::execute(const Cycle& cycle, const Setting& setting, uint64_t received_ns) {
  work_counter_.begin_cycle();
  for (const uint32_t id : cycle.evicted) cache_.forget(id, cycle.number);
  size_t bytes = 0;
  for (const Response& response : cycle.responses) bytes += bytes_of(response.request);
  events_.record(EventKind::kCycle, received_ns, received_ns, 0,
                 static_cast<uint32_t>(cycle.number), saturated(bytes),
                 static_cast<uint32_t>(cycle.responses.size()));
  fail_refused(cycle.responses);
  std::span<const Response> rest(cycle.responses);
  for (const BucketCut& cut : cycle.buckets) {
    ++bucket_;
    bucket(rest.first(cut.tensors), setting, cut.reason, received_ns);
    rest = rest.subspan(cut.tensors);
  }
  work_counter_.end_cycle();
}

void Executor::bucket(std::span<const Response> responses, const Setting& setting, CutReason reason,
                      uint64_t received_ns) {
  const bool recorded = recorder_.enabled();
  std::vector<Member> members;
  for (const Response& response : responses) {
    if (!take(response, members)) continue;
    if (recorded) members.back().name = name_id(members.back());
    members.back().seq = next_seq_[response.request.process_set]++;
  }
  if (members.empty()) return;
  const uint64_t begin = now_ns();
  if (recorded) {
    for (const Member& member : members) record_negotiation(member, received_ns);
  }
  work_counter_.begin(members[0].response->request.process_set);
  FAILPOINT("executor/begin");
  if (members[0].response->request.on_gpu) {
    return hand_to_gpu(members, setting, reason);
  }
  run(members, setting);
  FAILPOINT("executor/carried_out");
  // A rank that was given up while it could not run must not report success.
  if (mesh_.arena) mesh_.arena->check_not_abandoned();
  lease_.await(stop_);
  work_counter_.moved();
  FAILPOINT("executor/done");
  // Recorded before completion: a script that ends with its last tensor still has its record.
  if (recorded) record_execution(members, reason, received_ns, begin);
  std::vector<std::shared_ptr<Operation>> done;
  for (Member& member : members) {
    if (member.operation) done.push_back(std::move(member.operation));
  }
  table_.complete(done);
  FAILPOINT("executor/completed");
}

// All at once: a caller that comes back after one of them must not meet the next, which may have
// the name of what it submits now.
void Executor::fail_refused(std::span<const Response> responses) {
  std::vector<Failure> failures;
  for (const Response& response : responses) {
    if (response.error.empty()) continue;
    change_(response);
    const std::string& name = response.request.name;
    failures.emplace_back(key_of(response.request),
                          Error(ErrorCode::kMismatch, response.error, -1, name));
  }
  if (!failures.empty()) table_.fail(failures);
}

// Whether this rank takes part; if so it is the last of `members`.
bool Executor::take(const Response& response, std::vector<Member>& members) {
  const Request& request = response.request;
  if (!response.error.empty()) return false;
  std::shared_ptr<Operation> operation = table_.find(key_of(request));
  if (response.cache_id != kNoCacheId && !response.compact) {
    cache_.remember(operation ? operation->request.get() : nullptr, response);
  }
  if (!sets_.includes(request.process_set, mesh_.topology.rank)) {
    // Above the set's ranks in the negotiation tree, who has joined is counted all the same.
    if (request.op == OpType::kJoin) change_(response);
    return false;
  }
  members.push_back({&response, std::move(operation), 0, 0});
  return true;
}

Group& Executor::group_of(uint32_t process_set) {
  const auto known = groups_.find(process_set);
  if (known != groups_.end()) return known->second;
  Observer& observer = *this;
  return groups_
      .try_emplace(process_set, mesh_, *sets_.find(process_set), scratch_, stop_, observer,
                   spins_for(mesh_))
      .first->second;
}

// Null where collectives are ours.
Backend* Executor::backend_of(uint32_t process_set) {
  if (backends_ == nullptr) return nullptr;
  std::unique_ptr<Backend>& backend = offered_[process_set];
  if (!backend) backend = backends_->for_ranks(*sets_.find(process_set));
  return backend.get();
}

// Memory of the executor's own, in place of that of a tensor this rank does not have.
uint8_t* Executor::spare(size_t bytes) { return spare_.take(0, bytes); }

// One bucket, of which all but operations that fuse are alone. A function for each operation.
struct Executor::Execution {
  Executor& self;
  std::span<const Member> members;
  const Setting& setting;
  const Response& response = *members[0].response;
  const Request& request = response.request;
  Operation* own = members[0].operation.get();  // null: this rank has joined

  void allreduce() const;
  void broadcast() const;
  void allgather() const;
  void barrier() const;
  void alltoall() const;
  void reducescatter() const;
  void change() const;

  Group& group() const { return self.group_of(request.process_set); }
  // Whether somebody else's collectives have done it.
  bool offered(const CollectiveCall& call) const {
    Backend* const other = self.backend_of(request.process_set);
    return other != nullptr && other->run(group(), call);
  }
  static void add_tensors(const Member& member, DType dtype, uint8_t*& identity, Payload& payload);
};

void Executor::run(std::span<const Member> members, const Setting& setting) {
  using Function = void (Execution::*)() const;
  static constexpr std::array<std::pair<OpType, Function>, kOpTypeCount> kFunctions = {{
      {OpType::kAllreduce, &Execution::allreduce},
      {OpType::kBroadcast, &Execution::broadcast},
      {OpType::kAllgather, &Execution::allgather},
      {OpType::kBarrier, &Execution::barrier},
      {OpType::kAlltoall, &Execution::alltoall},
      {OpType::kReducescatter, &Execution::reducescatter},
      {OpType::kJoin, &Execution::change},
      {OpType::kAddSet, &Execution::change},
      {OpType::kRemoveSet, &Execution::change},
  }};
  static_assert(
      [] {
        for (size_t i = 0; i < kFunctions.size(); ++i) {
          if (static_cast<size_t>(kFunctions[i].first) != i) return false;
        }
        return true;
      }(),
      "functions are found by the number of their operation");
  const Execution execution{*this, members, setting};
  (execution.*kFunctions[static_cast<size_t>(execution.request.op)].second)();
}

// A bucket is of one dtype, unless it is a group of several.
void Executor::Execution::allreduce() const {
  std::vector<DType> dtypes;
  for (const TensorSpec& tensor : request.tensors) {
    if (std::ranges::find(dtypes, tensor.dtype) == dtypes.end()) dtypes.push_back(tensor.dtype);
  }
  Group& group = this->group();
  for (const DType dtype : dtypes) {
    size_t absent = 0;
    for (const Member& member : members) {
      if (!member.operation) absent += bytes_of(member.response->request);
    }
    uint8_t* identity = self.spare(absent);
    Payload payload;
    for (const Member& member : members) add_tensors(member, dtype, identity, payload);
    if (request.reduce_op == ReduceOp::kAdasum) {
      adasum(group, dtype, request.prescale, request.postscale, payload, setting);
      continue;
    }
    const Reduction how{dtype, request.reduce_op, request.prescale, request.postscale,
                        group.size()};
    if (offered({.op = request.op, .reduction = how, .payload = &payload})) continue;
    hvdtune::allreduce(group, how, payload, setting);
  }
}

// A rank that has joined adds identity elements instead, from `identity` on.
void Executor::Execution::add_tensors(const Member& member, DType dtype, uint8_t*& identity,
                                      Payload& payload) {
  const Request& request = member.response->request;
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    if (request.tensors[i].dtype != dtype) continue;
    const size_t bytes = bytes_of(request.tensors[i]);
    if (member.operation) {
      payload.add(member.operation->memory[i].input, member.operation->memory[i].output, bytes);
      continue;
    }
    fill_identity(dtype, request.reduce_op, identity, bytes / size_of(dtype));
    payload.add(identity, identity, bytes);
    identity += bytes;
  }
}

void Executor::Execution::broadcast() const {
  const std::vector<int>& ranks = *self.sets_.find(request.process_set);
  const auto root = static_cast<int>(std::ranges::find(ranks, request.root) - ranks.begin());
  Group& group = this->group();
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const size_t bytes = bytes_of(request.tensors[i]);
    TensorMemory memory;
    if (own != nullptr) {
      memory = own->memory[i];
    } else {
      memory.output = self.spare(bytes);
      memory.input = memory.output;
    }
    if (offered({.op = request.op,
                 .input = memory.input,
                 .output = memory.output,
                 .bytes = bytes,
                 .root = root})) {
      continue;
    }
    hvdtune::broadcast(group, root, memory.input, memory.output, bytes, setting);
  }
}

void Executor::Execution::allgather() const {
  Group& group = this->group();
  const auto n = static_cast<size_t>(group.size());
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& tensor = request.tensors[i];
    const size_t row_bytes = row_elements(tensor) * size_of(tensor.dtype);
    const auto dims = std::span(response.first_dims).subspan(i * n, n);
    std::vector<size_t> blocks;
    for (const int64_t rows : dims) blocks.push_back(static_cast<size_t>(rows) * row_bytes);
    const TensorMemory memory = own != nullptr ? own->memory[i] : TensorMemory{};
    Result result =
        make_result(tensor, std::accumulate(dims.begin(), dims.end(), int64_t{0}), memory);
    const uint8_t* input = memory.input;
    uint8_t* output = result.in_place ? memory.output : result.bytes.get();
    if (!offered({.op = request.op, .input = input, .output = output, .from_ranks = blocks})) {
      hvdtune::allgather(group, input, output, blocks, setting);
    }
    if (own != nullptr) own->results.push_back(std::move(result));
  }
}

void Executor::Execution::alltoall() const {
  Group& group = this->group();
  Operation& operation = *own;
  const TensorSpec& tensor = operation.request->tensors[0];
  const size_t row_bytes = row_elements(tensor) * size_of(tensor.dtype);
  const auto n = static_cast<size_t>(group.size());
  const auto me = static_cast<size_t>(group.rank());
  std::vector<size_t> send_bytes;
  std::vector<size_t> recv_bytes;
  int64_t rows = 0;
  for (size_t peer = 0; peer < n; ++peer) {
    const int64_t from_peer = response.first_dims[peer * n + me];
    send_bytes.push_back(static_cast<size_t>(operation.request->splits[peer]) * row_bytes);
    recv_bytes.push_back(static_cast<size_t>(from_peer) * row_bytes);
    operation.numbers.push_back(from_peer);
    rows += from_peer;
  }
  const TensorMemory& memory = operation.memory[0];
  operation.results.push_back(make_result(tensor, rows, memory));
  const uint8_t* input = memory.input;
  uint8_t* output =
      operation.results[0].in_place ? memory.output : operation.results[0].bytes.get();
  if (offered({.op = request.op,
               .input = input,
               .output = output,
               .to_ranks = send_bytes,
               .from_ranks = recv_bytes})) {
    return;
  }
  const std::vector<int64_t>& all_rows = response.first_dims;
  const auto sum = std::accumulate(all_rows.begin(), all_rows.end(), int64_t{0});
  const int64_t longest = *std::ranges::max_element(all_rows);
  hvdtune::alltoall(
      group, input, send_bytes, output, recv_bytes,
      {static_cast<size_t>(sum) * row_bytes, static_cast<size_t>(longest) * row_bytes}, setting);
}

// The first ranks get one row more where rows cannot be divided evenly, as in Horovod.
void Executor::Execution::reducescatter() const {
  Group& group = this->group();
  const auto n = static_cast<size_t>(group.size());
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorSpec& tensor = request.tensors[i];
    const auto rows = static_cast<size_t>(tensor.shape[0]);
    std::vector<size_t> counts;
    for (size_t rank = 0; rank < n; ++rank) {
      counts.push_back((rows / n + (rank < rows % n ? 1 : 0)) * row_elements(tensor));
    }
    const Reduction how{tensor.dtype, request.reduce_op, request.prescale, request.postscale,
                        group.size()};
    const TensorMemory& memory = own->memory[i];
    if (offered({.op = request.op,
                 .reduction = how,
                 .input = memory.input,
                 .output = memory.output,
                 .to_ranks = counts})) {
      continue;
    }
    hvdtune::reducescatter(group, how, memory.input, memory.output, counts, setting);
  }
}

// Ours is over when every rank has announced it.
void Executor::Execution::barrier() const { offered({.op = request.op}); }

// Changes who has joined, or which process sets there are.
void Executor::Execution::change() const {
  if (own != nullptr) own->numbers = response.first_dims;
  self.change_(response);
}

uint32_t Executor::name_id(const Member& member) {
  const Request& request = member.response->request;
  const bool has_title = member.operation && !member.operation->title.empty();
  const std::string& name = has_title ? member.operation->title : request.name;
  const auto known = name_ids_.find(name);
  if (known != name_ids_.end()) return known->second;
  const uint32_t id = recorder_.intern(name, describe(request));
  return name_ids_.emplace(name, id).first->second;
}

uint32_t Executor::reason_id(CutReason reason) {
  uint32_t& id = reason_ids_[static_cast<size_t>(reason)];
  if (id == 0) id = recorder_.intern(name_of(reason));
  return id;
}

void Executor::record_negotiation(const Member& member, uint64_t received_ns) {
  if (!member.operation) return;
  const Operation& operation = *member.operation;
  events_.record(EventKind::kNegotiate, operation.announced_ns, received_ns, member.name,
                 member.seq, bucket_,
                 negotiate_arg(operation.was_cached, operation.request->process_set));
}

void Executor::record_execution(std::span<const Member> members, CutReason reason,
                                uint64_t received_ns, uint64_t begin_ns) {
  const uint64_t end = now_ns();
  size_t total = 0;
  for (const Member& member : members) {
    const Request& request = member.response->request;
    const size_t bytes = bytes_of(request);
    total += bytes;
    events_.record(EventKind::kQueue, received_ns, begin_ns, member.name, member.seq, bucket_,
                   request.process_set);
    events_.record(event_of(request.op), begin_ns, end, member.name, member.seq, bucket_,
                   saturated(bytes));
  }
  events_.record(EventKind::kBucket, begin_ns, end, reason_id(reason),
                 static_cast<uint32_t>(members.size()), bucket_, saturated(total));
}

void Executor::phase(Phase phase, uint64_t begin_ns, uint64_t end_ns, size_t bytes, int peer) {
  events_.record(event_of(phase), begin_ns, end_ns, 0, static_cast<uint32_t>(peer + 1), bucket_,
                 saturated(bytes));
}

}  // namespace hvdtune
