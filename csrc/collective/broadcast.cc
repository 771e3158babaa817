#include "collective/broadcast.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/group_shape.h"
#include "collective/pipeline.h"

namespace hvdtune {
namespace {

// The root, the rest of its host, then the hosts after it, cyclically.
std::vector<int> from_root(Group& group, int root) {
  const auto order = group.canonical_ranks();
  std::vector<int> ranks;
  const auto& hosts = group.topology().hosts;
  const auto first = std::ranges::find_if(
      hosts, [&](const auto& host) { return std::ranges::count(host, root) > 0; });
  const auto begin = std::ranges::find(order, first->front());
  ranks.assign(begin, order.end());
  ranks.insert(ranks.end(), order.begin(), begin);
  const auto at = std::ranges::find(ranks, root);
  std::rotate(ranks.begin(), at, at + 1);
  return ranks;
}

}  // namespace

void broadcast_tree(Group& group, int root, uint8_t* output, size_t bytes) {
  const std::vector<int> ranks = from_root(group, root);
  const auto size = static_cast<int>(ranks.size());
  const auto place = static_cast<int>(std::ranges::find(ranks, group.rank()) - ranks.begin());
  // The parent is the lowest bit of the place lower, the children are lower bits higher.
  int bit = 1;
  while (bit < size && (place & bit) == 0) bit *= 2;
  if (place != 0) {
    Transfer up{&group.link(ranks[static_cast<size_t>(place - bit)]), nullptr, 0, output, bytes};
    group.exchange({&up, 1});
  }
  std::vector<Transfer> down;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (place + bit >= size) continue;
    down.push_back({&group.link(ranks[static_cast<size_t>(place + bit)]), output, bytes});
  }
  group.exchange(down);
}

void broadcast_chain(Group& group, int root, uint8_t* output, size_t bytes, size_t chunk_bytes) {
  const std::vector<int> ranks = from_root(group, root);
  const auto place = static_cast<size_t>(std::ranges::find(ranks, group.rank()) - ranks.begin());
  const Chunks chunks(bytes, chunk_bytes);
  std::vector<TransferQueue::Pending> arriving(chunks.count());
  TransferQueue queue(group);
  TransferQueue::Pending sent;
  if (place > 0) {
    for (size_t i = 0; i < chunks.count(); ++i) {
      queue.recv(ranks[place - 1], output + chunks[i].begin, chunks[i].bytes, arriving[i]);
    }
  }
  if (place + 1 < ranks.size()) {
    for (size_t i = 0; i < chunks.count(); ++i) {
      queue.await_received(arriving[i]);
      queue.send(ranks[place + 1], output + chunks[i].begin, chunks[i].bytes, sent);
    }
  }
  queue.finish();
}

void broadcast_shared(Group& group, int root, uint8_t* output, size_t bytes, size_t chunk_bytes) {
  GroupArena& arena = *group.arena();
  const Chunks chunks(bytes, std::min(chunk_bytes, arena.slot_bytes()));
  for (size_t i = 0; i < chunks.count(); ++i) {
    const Chunk chunk = chunks[i];
    uint8_t* slot = arena.slot(root, group.next_buffer_index());
    if (group.rank() == root) {
      group.observe(Phase::kPack, chunk.bytes,
                    [&] { std::memcpy(slot, output + chunk.begin, chunk.bytes); });
    }
    // The slot is filled again two chunks on: all have then met after they read it.
    group.host_barrier();
    if (group.rank() != root) {
      group.observe(Phase::kUnpack, chunk.bytes,
                    [&] { std::memcpy(output + chunk.begin, slot, chunk.bytes); });
    }
  }
  group.leave();
}

namespace {

// Chunk c begins to fill its leader's slot in step c; it is read in step c + depth and filled again
// kRing chunks later, one step after all have met who read it.
constexpr size_t kRing = kStageDepth + 2;

class HierarchicalBroadcast {
 public:
  HierarchicalBroadcast(Group& group, int root, uint8_t* output, size_t bytes, size_t chunk_bytes)
      : group_(group),
        arena_(*group.arena()),
        output_(output),
        chunks_(bytes, std::min(chunk_bytes, arena_.slot_bytes() / (kRing / 2) / 64 * 64)),
        queue_(group) {
    const auto& hosts = group.topology().hosts;
    const auto here = static_cast<size_t>(group.topology().cross_rank);
    for (size_t host = 0; host < hosts.size(); ++host) {
      const auto at = std::ranges::find(hosts[host], root);
      if (at == hosts[host].end()) continue;
      const size_t place = static_cast<size_t>(at - hosts[host].begin());
      leader_ = static_cast<int>(place);
      const size_t size = hosts.size();
      const size_t hops = (here + size - host) % size;
      if (hops > 0) from_ = hosts[(here + size - 1) % size][place];
      if (hops + 1 < size) to_ = hosts[(here + 1) % size][place];
    }
  }

  void run() {
    group_.next_buffer_index();
    group_.host_barrier();  // the set's last operation may still be reading the slots
    for (size_t step = 0; step < chunks_.count() + kStageDepth; ++step) {
      if (step < chunks_.count() && leads()) start(chunks_[step]);
      if (step < kStageDepth) continue;
      const Chunk chunk = chunks_[step - kStageDepth];
      if (leads()) hand_on(chunk);
      group_.host_barrier();
      if (from_ < 0 && leads()) continue;  // the root
      group_.observe(Phase::kUnpack, chunk.bytes,
                     [&] { std::memcpy(output_ + chunk.begin, slot(chunk), chunk.bytes); });
    }
    queue_.finish();
    group_.leave();
  }

 private:
  bool leads() const { return arena_.local_rank() == leader_; }
  uint8_t* slot(Chunk chunk) const {
    return arena_.slot(leader_, static_cast<int>(chunk.index % 2)) +
           chunk.index % kRing / 2 * whole_lines(chunks_.largest());
  }

  void start(Chunk chunk) {
    TransferQueue::Pending& pending = pending_[chunk.index % kRing];
    queue_.await_sent(pending);
    if (from_ >= 0) {
      queue_.recv(from_, slot(chunk), chunk.bytes, pending);
    } else {
      group_.observe(Phase::kPack, chunk.bytes,
                     [&] { std::memcpy(slot(chunk), output_ + chunk.begin, chunk.bytes); });
    }
  }

  void hand_on(Chunk chunk) {
    TransferQueue::Pending& pending = pending_[chunk.index % kRing];
    queue_.await_received(pending);
    if (to_ >= 0) queue_.send(to_, slot(chunk), chunk.bytes, pending);
  }

  Group& group_;
  GroupArena& arena_;
  uint8_t* output_;
  Chunks chunks_;
  TransferQueue queue_;
  int leader_ = 0;  // local rank, the same on every host
  int from_ = -1;
  int to_ = -1;
  TransferQueue::Pending pending_[kRing];
};

}  // namespace

void broadcast_hierarchical(Group& group, int root, uint8_t* output, size_t bytes,
                            size_t chunk_bytes) {
  HierarchicalBroadcast(group, root, output, bytes, chunk_bytes).run();
}

void broadcast_by(Algorithm algorithm, Group& group, int root, const uint8_t* input,
                  uint8_t* output, size_t bytes, size_t chunk_bytes) {
  if (bytes == 0) return;
  if (group.rank() == root && input != output) {
    group.observe(Phase::kPack, bytes, [&] { std::memcpy(output, input, bytes); });
  }
  switch (algorithm) {
    case Algorithm::kAlone:
      return;
    case Algorithm::kShared:
      return broadcast_shared(group, root, output, bytes, chunk_bytes);
    case Algorithm::kHierarchical:
      return broadcast_hierarchical(group, root, output, bytes, chunk_bytes);
    case Algorithm::kChain:
      return broadcast_chain(group, root, output, bytes, chunk_bytes);
    default:
      return broadcast_tree(group, root, output, bytes);
  }
}

void broadcast(Group& group, int root, const uint8_t* input, uint8_t* output, size_t bytes,
               const Setting& setting) {
  broadcast_by(choose(OpType::kBroadcast, bytes, shape_of(group), setting), group, root, input,
               output, bytes, static_cast<size_t>(setting.chunk_bytes) / 64 * 64);
}

}  // namespace hvdtune
