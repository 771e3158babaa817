#include "collective/alltoall.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/copy.h"
#include "base/failpoint.h"
#include "collective/group_shape.h"
#include "collective/rank_blocks.h"

namespace hvdtune {
namespace {

// After each a rank that was given up is told so.
constexpr size_t kPieceBytes = size_t{256} << 10;

constexpr size_t kLine = 64;

// Blocks up to here fit into a link, whose sender need not wait for the one that receives.
constexpr size_t kLinkBytes = size_t{256} << 10;

// What a rank shows at the start of its slot: whether it reaches all others' memory, and where its
// block for each rank begins, in its process.
class Shown {
 public:
  explicit Shown(uint8_t* slot) : words_(reinterpret_cast<uint64_t*>(slot)) {}
  static size_t bytes(int ranks) { return (static_cast<size_t>(ranks) + 1) * sizeof(uint64_t); }

  uint64_t& reaches_all() { return words_[0]; }
  uint64_t& block_for(int rank) { return words_[1 + rank]; }

 private:
  uint64_t* words_;
};

// Copies into a link and out of it are taken to cost what those into a slot and out of it do.
bool is_worth_peer_copies(size_t bytes, int ranks, const HostCosts& costs) {
  const double kib = static_cast<double>(bytes) / 1024;
  const double calls = ranks - 1 + static_cast<double>(bytes) / kPieceBytes;
  const double peer_ns =
      kib * costs.far_peer_copy_ns + calls * costs.peer_call_ns + 2 * costs.meet_ns;
  return peer_ns < 2 * kib * costs.far_copy_ns;
}

size_t sum_of(std::span<const size_t> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

void copy_own(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
              uint8_t* output, std::span<const size_t> recv_bytes) {
  const size_t mine = send_bytes[static_cast<size_t>(group.rank())];
  if (mine == 0) return;
  const RankBlocks<const uint8_t> sent(input, send_bytes);
  const RankBlocks<uint8_t> received(output, recv_bytes);
  group.observe(Phase::kPack, mine, [&] {
    copy_part(received.at(group.rank()), sent.at(group.rank()), mine, sum_of(recv_bytes));
  });
}

}  // namespace

void alltoall_direct(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                     uint8_t* output, std::span<const size_t> recv_bytes) {
  copy_own(group, input, send_bytes, output, recv_bytes);
  const RankBlocks<const uint8_t> sent(input, send_bytes);
  const RankBlocks<uint8_t> received(output, recv_bytes);
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    transfers.push_back({&group.link(rank), sent.at(rank), sent.bytes(rank), received.at(rank),
                         received.bytes(rank)});
  }
  group.exchange(transfers);
}

bool alltoall_shared(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                     uint8_t* output, std::span<const size_t> recv_bytes) {
  GroupArena& arena = *group.arena();
  if (!arena.has_one_pid_namespace() || Shown::bytes(group.size()) > arena.slot_bytes()) {
    return false;
  }
  const int buffer_index = group.next_buffer_index();
  const RankBlocks<const uint8_t> sent(input, send_bytes);
  Shown own(arena.slot(arena.local_rank(), buffer_index));
  own.reaches_all() = arena.has_peer_access() ? 1 : 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    own.block_for(rank) = reinterpret_cast<uint64_t>(sent.at(rank));
  }
  group.host_barrier();
  bool all_reach = true;
  for (int rank = 0; rank < group.size(); ++rank) {
    all_reach = all_reach && Shown(arena.slot(rank, buffer_index)).reaches_all() != 0;
  }
  if (!all_reach) {
    group.leave();
    return false;
  }
  copy_own(group, input, send_bytes, output, recv_bytes);
  const RankBlocks<uint8_t> received(output, recv_bytes);
  for (int step = 1; step < group.size(); ++step) {
    const int rank = (group.rank() + step) % group.size();
    const size_t bytes = received.bytes(rank);
    const uint64_t from = Shown(arena.slot(rank, buffer_index)).block_for(group.rank());
    group.observe(Phase::kExchange, bytes, [&] {
      for (size_t at = 0; at < bytes; at += kPieceBytes) {
        arena.check_not_abandoned();
        FAILPOINT("alltoall/piece");
        const PeerMemory::RemoteRange piece{from + at, std::min(kPieceBytes, bytes - at)};
        arena.memory(rank).read({&piece, 1}, received.at(rank) + at);
      }
    });
  }
  // The others still read this rank's blocks.
  group.host_barrier();
  group.leave();
  return true;
}

bool alltoall_slots(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                    uint8_t* output, std::span<const size_t> recv_bytes, size_t longest_bytes,
                    size_t chunk_bytes) {
  GroupArena& arena = *group.arena();
  const auto ranks = static_cast<size_t>(group.size());
  const size_t step = std::min(chunk_bytes, arena.slot_bytes()) / ranks / kLine * kLine;
  if (step == 0) return false;
  const auto place = [&](int from, int buffer_index, int to) {
    return arena.slot(from, buffer_index) + step * static_cast<size_t>(to);
  };
  const int me = group.rank();
  const RankBlocks<const uint8_t> sent(input, send_bytes);
  const RankBlocks<uint8_t> received(output, recv_bytes);
  const size_t whole = sum_of(recv_bytes);
  copy_own(group, input, send_bytes, output, recv_bytes);
  for (size_t begin = 0; begin < longest_bytes; begin += step) {
    const int buffer_index = group.next_buffer_index();
    group.observe(Phase::kPack, step * (ranks - 1), [&] {
      for (int rank = 0; rank < group.size(); ++rank) {
        if (rank == me) continue;
        copy_bytes(place(me, buffer_index, rank), sent.at(rank) + begin,
                   sent.part(rank, begin, step));
      }
    });
    // A slot is filled again two rounds on: all have then met after they read it.
    group.host_barrier();
    group.observe(Phase::kUnpack, step * (ranks - 1), [&] {
      for (int rank = 0; rank < group.size(); ++rank) {
        if (rank == me) continue;
        copy_part(received.at(rank) + begin, place(rank, buffer_index, me),
                  received.part(rank, begin, step), whole);
      }
    });
  }
  group.leave();
  return true;
}

void alltoall_by(Algorithm algorithm, Group& group, const uint8_t* input,
                 std::span<const size_t> send_bytes, uint8_t* output,
                 std::span<const size_t> recv_bytes) {
  if (algorithm == Algorithm::kShared &&
      alltoall_shared(group, input, send_bytes, output, recv_bytes)) {
    return;
  }
  alltoall_direct(group, input, send_bytes, output, recv_bytes);
}

void alltoall(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
              uint8_t* output, std::span<const size_t> recv_bytes, const AllBlocks& all,
              const Setting& setting) {
  const Algorithm algorithm = choose(OpType::kAlltoall, all.total_bytes, shape_of(group), setting);
  if (algorithm != Algorithm::kShared) {
    return alltoall_by(algorithm, group, input, send_bytes, output, recv_bytes);
  }
  const size_t each = all.total_bytes / static_cast<size_t>(group.size());
  const bool is_done =
      (is_worth_peer_copies(each, group.size(), group.costs()) &&
       alltoall_shared(group, input, send_bytes, output, recv_bytes)) ||
      (all.longest_bytes > kLinkBytes &&
       alltoall_slots(group, input, send_bytes, output, recv_bytes, all.longest_bytes,
                      static_cast<size_t>(setting.chunk_bytes)));
  if (!is_done) alltoall_direct(group, input, send_bytes, output, recv_bytes);
}

}  // namespace hvdtune
