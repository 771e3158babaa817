#include <algorithm>
#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/reduce/accumulate.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kPartial, kTotal, kResult };

// A rank's place in the canonical order; -1 where there is none.
struct Neighbours {
  int before = -1;          // whose partial result of this host this rank continues
  int after = -1;           // who continues this rank's
  int last_of_before = -1;  // on the host before: has the total so far; asked by a host's last
  int last_of_after = -1;   // on the host after: gets the total
  int result_from = -1;
  int result_to = -1;
};

Neighbours neighbours_of(const Topology& topology, std::span<const int> order) {
  Neighbours found;
  const std::vector<int>* before = nullptr;
  for (size_t h = 0; h < topology.hosts.size(); ++h) {
    const std::vector<int>& host = topology.hosts[h];
    const auto at = std::ranges::find(host, topology.rank);
    if (at != host.end()) {
      if (at != host.begin()) found.before = *(at - 1);
      if (at + 1 != host.end()) {
        found.after = *(at + 1);
      } else {
        if (before != nullptr) found.last_of_before = before->back();
        if (h + 1 < topology.hosts.size()) found.last_of_after = topology.hosts[h + 1].back();
      }
    }
    before = &host;
  }
  const auto place = std::ranges::find(order, topology.rank);
  if (place != order.begin()) found.result_to = *(place - 1);
  if (place + 1 != order.end()) found.result_from = *(place + 1);
  return found;
}

// The result of a chunk comes back to a rank two steps later for each rank behind it, but a rank
// does not run further ahead than this, so that memory stays bounded.
constexpr size_t kMostAhead = 16;

class ChainAllreduce : Pipelined {
 public:
  ChainAllreduce(Group& group, const Reduction& reduction, const Payload& payload,
                 size_t chunk_bytes)
      : Pipelined(group, reduction, payload, chunk_bytes),
        wide_(accumulator_bytes(reduction)),
        near_(neighbours_of(group.topology(), group.canonical_ranks())),
        ahead_(ahead(group)),
        packed_(group.scratch().take(kPacked, chunks_.largest())),
        partial_(group, kPartial, 2, largest_count() * wide_),
        total_(group, kTotal, 2, largest_count() * wide_),
        result_(group, kResult, ahead_ + 1, chunks_.largest()) {}

  void run() {
    run_stages(
        chunks_, ahead_, [&](Chunk chunk) { fold(chunk); }, [&](Chunk chunk) { pass_back(chunk); });
    queue_.finish();
  }

 private:
  static size_t ahead(Group& group) {
    const auto order = group.canonical_ranks();
    const auto behind = static_cast<size_t>(order.end() - std::ranges::find(order, group.rank()));
    return std::min(2 * (behind - 1), kMostAhead);
  }

  // This rank's contribution joins its host's partial result, that of a host's last rank the total.
  void fold(Chunk chunk) {
    const size_t count = count_of(chunk);
    pack(chunk, packed_);
    uint8_t* partial = fresh(partial_, chunk, near_.before);
    group_.observe(Phase::kReduce, chunk.bytes,
                   [&] { fold_in(reduction_, packed_, partial, count, near_.before < 0); });
    if (near_.after >= 0) {
      queue_.send(near_.after, partial, count * wide_, partial_.pending(chunk.index));
    } else {
      add_to_total(chunk, partial);
    }
    if (near_.result_from >= 0) {
      TransferQueue::Pending& pending = result_.pending(chunk.index);
      queue_.await_sent(pending);
      queue_.recv(near_.result_from, result_.at(chunk.index), chunk.bytes, pending);
    }
  }

  // Memory for accumulators, with what `from` sends in it.
  uint8_t* fresh(ChunkBuffers& ring, Chunk chunk, int from) {
    TransferQueue::Pending& pending = ring.pending(chunk.index);
    queue_.await_sent(pending);
    if (from >= 0) {
      queue_.recv(from, ring.at(chunk.index), count_of(chunk) * wide_, pending);
      queue_.await_received(pending);
    }
    return ring.at(chunk.index);
  }

  void add_to_total(Chunk chunk, uint8_t* partial) {
    const size_t count = count_of(chunk);
    uint8_t* total = partial;
    TransferQueue::Pending* pending = &partial_.pending(chunk.index);
    if (near_.last_of_before >= 0) {
      total = fresh(total_, chunk, near_.last_of_before);
      pending = &total_.pending(chunk.index);
      group_.observe(Phase::kReduce, chunk.bytes,
                     [&] { combine(reduction_, partial, total, count); });
    }
    if (near_.last_of_after >= 0) {
      queue_.send(near_.last_of_after, total, count * wide_, *pending);
    } else {
      queue_.await_sent(result_.pending(chunk.index));
      group_.observe(Phase::kReduce, chunk.bytes,
                     [&] { store(reduction_, total, result_.at(chunk.index), count); });
    }
  }

  void pass_back(Chunk chunk) {
    TransferQueue::Pending& pending = result_.pending(chunk.index);
    queue_.await_received(pending);
    if (near_.result_to >= 0) {
      queue_.send(near_.result_to, result_.at(chunk.index), chunk.bytes, pending);
    }
    unpack(chunk, result_.at(chunk.index));
  }

  size_t wide_;
  Neighbours near_;
  size_t ahead_;
  uint8_t* packed_;
  ChunkBuffers partial_;
  ChunkBuffers total_;
  ChunkBuffers result_;
};

}  // namespace

void allreduce_chain(Group& group, const Reduction& reduction, const Payload& payload,
                     size_t chunk_bytes) {
  ChainAllreduce(group, reduction, payload, chunk_bytes).run();
}

}  // namespace hvdtune
