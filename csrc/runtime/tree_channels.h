// This rank's connections in the negotiation tree.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "runtime/framed_channel.h"
#include "transport/mesh.h"

namespace hvdtune {

// Messages of negotiation that crossed this rank's connections, and their payloads' bytes.
struct ControlTraffic {
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

// Thread rule: the holder of the progress lock.
class TreeChannels {
 public:
  // Called for each frame with the branch it came from: 0 for the parent's, i for child i's.
  using Take = std::function<void(size_t branch, const Frame& frame)>;

  // Takes the mesh's connections.
  explicit TreeChannels(Mesh& mesh);

  bool is_root() const { return !parent_; }
  int parent() const { return parent_ ? parent_->peer() : -1; }
  int child(size_t branch) const { return children_[branch - 1].peer(); }
  size_t branches() const { return 1 + children_.size(); }

  // Never waits: rank 0 may be waiting for this rank to take a long cycle.
  void send_up(const std::vector<uint8_t>& announce);
  // Waits until the kernel has it for every child that has not left.
  void send_down(Bytes cycle, const StopSignal& stop);
  // Passes received frames to `take`, in order. Throws Error(kRankLost) for a neighbour that is
  // gone.
  void receive(const Take& take);
  // `rank` sends nothing more.
  void on_rank_left(int rank);
  // Nothing reaches rank 0 any more.
  bool is_cut_off() const { return parent_ && has_left(parent_->peer()); }

  // Counts what goes to ranks that have left, too: they may wait for it.
  size_t undelivered_bytes();

  void add_to(std::vector<pollfd>& polls) const;
  const ControlTraffic& traffic() const { return traffic_; }

 private:
  void receive_from(size_t branch, FramedChannel& channel, const Take& take);
  bool has_left(int rank) const;

  std::optional<FramedChannel> parent_;
  std::vector<FramedChannel> children_;
  std::vector<int> left_ranks_;
  ControlTraffic traffic_;
};

}  // namespace hvdtune
