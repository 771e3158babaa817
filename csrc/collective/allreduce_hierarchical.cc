#include <algorithm>
#include <vector>

#include "collective/allreduce.h"
#include "collective/share.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPartial, kReceived, kAlone };

// The rank that holds this rank's place on each host.
std::vector<int> cross_ranks(const Topology& topology) {
  std::vector<int> ranks;
  for (const std::vector<int>& host : topology.hosts) {
    ranks.push_back(host[static_cast<size_t>(topology.local_rank)]);
  }
  return ranks;
}

// Reduces `share` of the chunk over the ranks of this host, then over hosts; `result` is the whole
// chunk's, of which only `share` is written.
void reduce_share(Group& group, const Reduction& reduction, std::span<const uint8_t* const> inputs,
                  Share share, uint8_t* result) {
  const size_t element = size_of(reduction.dtype);
  const size_t wide = accumulator_bytes(reduction);
  const std::vector<int> cross = cross_ranks(group.topology());
  const int hosts = static_cast<int>(cross.size());
  const int me = group.topology().cross_rank;
  const Share mine = share_of(share.count, hosts, me, element);

  uint8_t* partial = group.scratch().take(kPartial, share.count * wide);
  group.observe(Phase::kReduce, share.count * element,
                [&] { reduce_host(reduction, inputs, partial, share.count); });

  uint8_t* received = group.scratch().take(kReceived, mine.count * wide * cross.size());
  std::vector<Transfer> transfers;
  std::vector<uint8_t*> partials;
  for (int host = 0; host < hosts; ++host) {
    if (host == me) {
      partials.push_back(partial + mine.begin * wide);
      continue;
    }
    const Share theirs = share_of(share.count, hosts, host, element);
    partials.push_back(received + mine.count * wide * static_cast<size_t>(host));
    transfers.push_back({&group.link(cross[static_cast<size_t>(host)]),
                         partial + theirs.begin * wide, theirs.count * wide, partials.back(),
                         mine.count * wide});
  }
  group.exchange(transfers);

  uint8_t* out = result + share.begin * element;
  group.observe(Phase::kReduce, mine.count * element, [&] {
    reduce_partials(reduction, partials, out + mine.begin * element, mine.count);
  });
  transfers.clear();
  for (int host = 0; host < hosts; ++host) {
    if (host == me) continue;
    const Share theirs = share_of(share.count, hosts, host, element);
    transfers.push_back({&group.link(cross[static_cast<size_t>(host)]), out + mine.begin * element,
                         mine.count * element, out + theirs.begin * element,
                         theirs.count * element});
  }
  group.exchange(transfers);
}

void through_arena(Group& group, const Reduction& reduction, const Payload& payload, size_t at,
                   size_t bytes) {
  Arena& arena = *group.arena();
  const int parity = group.next_parity();
  const size_t element = size_of(reduction.dtype);
  const Share share = share_of(bytes / element, arena.local_size(), arena.local_rank(), element);
  group.observe(Phase::kPack, bytes,
                [&] { payload.pack(at, bytes, arena.slot(arena.local_rank(), parity)); });
  group.meet();
  std::vector<const uint8_t*> inputs;
  for (int rank = 0; rank < arena.local_size(); ++rank) {
    inputs.push_back(arena.slot(rank, parity) + share.begin * element);
  }
  reduce_share(group, reduction, inputs, share, arena.result(parity));
  group.meet();
  group.observe(Phase::kUnpack, bytes, [&] { payload.unpack(at, bytes, arena.result(parity)); });
}

void alone_on_host(Group& group, const Reduction& reduction, const Payload& payload, size_t at,
                   size_t bytes) {
  uint8_t* chunk = group.scratch().take(kAlone, bytes);
  group.observe(Phase::kPack, bytes, [&] { payload.pack(at, bytes, chunk); });
  const uint8_t* const inputs[] = {chunk};
  reduce_share(group, reduction, inputs, {0, bytes / size_of(reduction.dtype)}, chunk);
  group.observe(Phase::kUnpack, bytes, [&] { payload.unpack(at, bytes, chunk); });
}

}  // namespace

void allreduce_hierarchical(Group& group, const Reduction& reduction, const Payload& payload,
                            size_t chunk_bytes) {
  if (group.arena() != nullptr) chunk_bytes = std::min(chunk_bytes, group.arena()->slot_bytes());
  for (size_t at = 0; at < payload.bytes(); at += chunk_bytes) {
    const size_t bytes = std::min(chunk_bytes, payload.bytes() - at);
    if (group.arena() != nullptr) {
      through_arena(group, reduction, payload, at, bytes);
    } else {
      alone_on_host(group, reduction, payload, at, bytes);
    }
  }
}

}  // namespace hvdtune
