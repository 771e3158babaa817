#include "runtime/executor.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "collective/allgather.h"
#include "collective/allreduce.h"
#include "collective/broadcast.h"

namespace hvdtune {
namespace {

// Spinning pays only while every rank can have a core of its own.
int spins_for(const Topology& topology) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 0;
  return topology.local_size <= CPU_COUNT(&cpus) ? 300 : 0;
}

EventKind event_of(OpType op) {
  switch (op) {
    case OpType::kAllreduce:
      return EventKind::kAllreduce;
    case OpType::kBroadcast:
      return EventKind::kBroadcast;
    case OpType::kAllgather:
      return EventKind::kAllgather;
    case OpType::kBarrier:
      return EventKind::kBarrier;
  }
  return EventKind::kBarrier;
}

EventKind event_of(Phase phase) {
  switch (phase) {
    case Phase::kPack:
      return EventKind::kPack;
    case Phase::kReduce:
      return EventKind::kReduce;
    case Phase::kExchange:
      return EventKind::kExchange;
    case Phase::kUnpack:
      return EventKind::kUnpack;
    case Phase::kWait:
      return EventKind::kWait;
  }
  return EventKind::kWait;
}

}  // namespace

Executor::Executor(Mesh& mesh, const StopSignal& stop, OperationTable& table, ResponseCache& cache,
                   Recorder& recorder, Recorder::Lane& lane)
    : group_(mesh, stop, *this, spins_for(mesh.topology)),
      table_(table),
      cache_(cache),
      recorder_(recorder),
      lane_(lane) {}

void Executor::execute(const Cycle& cycle, const Setting& setting, uint64_t received_ns) {
  for (const uint32_t id : cycle.evicted) cache_.forget(id);
  size_t bytes = 0;
  for (const Response& response : cycle.responses) bytes += bytes_of(response.request);
  lane_.record(EventKind::kCycle, received_ns, received_ns, 0, static_cast<uint32_t>(cycle.number),
               saturated(bytes), static_cast<uint32_t>(cycle.responses.size()));
  std::span<const Response> rest(cycle.responses);
  for (const BucketCut& cut : cycle.buckets) {
    bucket(rest.first(cut.tensors), setting, cut.reason, received_ns);
    rest = rest.subspan(cut.tensors);
  }
}

void Executor::bucket(std::span<const Response> responses, const Setting& setting, CutReason reason,
                      uint64_t received_ns) {
  std::vector<Member> members;
  for (const Response& response : responses) {
    const std::string& name = response.request.name;
    std::shared_ptr<Operation> operation = table_.find(name);
    if (!response.error.empty()) {
      // Ranks that disagree about the operation itself do not all know this name.
      if (operation) table_.fail(name, Error(ErrorCode::kMismatch, response.error, -1, name));
      continue;
    }
    if (!operation) {
      throw Error(ErrorCode::kInternal,
                  "tensor \"" + name + "\" was negotiated but never announced", -1, name);
    }
    if (response.cache_id != kNoCacheId && !response.compact) {
      cache_.remember(operation->request, response);
    }
    members.push_back({&response, std::move(operation), name_id(name), next_seq_++});
  }
  if (members.empty()) return;
  ++bucket_;
  const uint64_t begin = now_ns();
  if (recorder_.enabled()) {
    for (const Member& member : members) record_negotiation(member, received_ns);
  }
  run(members, setting);
  // Recorded before completion: a script that ends with its last tensor still has its record.
  if (recorder_.enabled()) record_execution(members, reason, received_ns, begin);
  std::vector<std::shared_ptr<Operation>> done;
  for (Member& member : members) done.push_back(std::move(member.operation));
  table_.complete(done);
}

void Executor::run(std::span<const Member> members, const Setting& setting) {
  const Operation& first = *members[0].operation;
  switch (first.request.op) {
    case OpType::kAllreduce: {
      Payload payload;
      for (const Member& member : members) {
        payload.add(member.operation->input, member.operation->output,
                    bytes_of(member.operation->request));
      }
      const Request& request = first.request;
      return allreduce(
          group_,
          {request.dtype, request.reduce_op, request.prescale, request.postscale, group_.size()},
          payload, setting);
    }
    case OpType::kBroadcast:
      return broadcast(group_, first.request.root, first.input, first.output,
                       bytes_of(first.request));
    case OpType::kAllgather:
      return run_allgather(members[0]);
    case OpType::kBarrier:
      return;  // that every rank has announced it is all it means
  }
}

void Executor::run_allgather(const Member& member) {
  Operation& operation = *member.operation;
  const std::vector<int64_t>& dims = member.response->first_dims;
  std::vector<int64_t> row(operation.request.shape.begin() + 1, operation.request.shape.end());
  const size_t row_bytes =
      static_cast<size_t>(element_count(row)) * size_of(operation.request.dtype);
  std::vector<size_t> blocks;
  size_t total = 0;
  int64_t rows = 0;
  for (const int64_t dim : dims) {
    blocks.push_back(static_cast<size_t>(dim) * row_bytes);
    total += blocks.back();
    rows += dim;
  }
  operation.gathered = std::make_unique_for_overwrite<uint8_t[]>(total);
  operation.gathered_shape = std::move(row);
  operation.gathered_shape.insert(operation.gathered_shape.begin(), rows);
  allgather(group_, operation.input, operation.gathered.get(), blocks);
}

uint32_t Executor::name_id(const std::string& name) {
  if (!recorder_.enabled()) return 0;
  const auto known = name_ids_.find(name);
  if (known != name_ids_.end()) return known->second;
  return name_ids_.emplace(name, recorder_.intern(name)).first->second;
}

void Executor::record_negotiation(const Member& member, uint64_t received_ns) {
  const Operation& operation = *member.operation;
  lane_.record(EventKind::kNegotiate, operation.announced_ns, received_ns, member.name, member.seq,
               bucket_, operation.was_cached ? 1 : 0);
  lane_.record(EventKind::kLate, received_ns, received_ns + member.response->late_ns, member.name,
               member.seq, 0, static_cast<uint32_t>(member.response->last_rank));
}

void Executor::record_execution(std::span<const Member> members, CutReason reason,
                                uint64_t received_ns, uint64_t begin_ns) {
  const uint64_t end = now_ns();
  size_t total = 0;
  for (const Member& member : members) {
    const size_t bytes = bytes_of(member.operation->request);
    total += bytes;
    lane_.record(EventKind::kQueue, received_ns, begin_ns, member.name, member.seq, bucket_, 0);
    lane_.record(event_of(member.operation->request.op), begin_ns, end, member.name, member.seq,
                 bucket_, saturated(bytes));
  }
  lane_.record(EventKind::kBucket, begin_ns, end, name_id(std::string(name_of(reason))),
               static_cast<uint32_t>(members.size()), bucket_, saturated(total));
}

void Executor::phase(Phase phase, uint64_t begin_ns, uint64_t end_ns, size_t bytes) {
  lane_.record(event_of(phase), begin_ns, end_ns, 0, 0, bucket_, saturated(bytes));
}

}  // namespace hvdtune
