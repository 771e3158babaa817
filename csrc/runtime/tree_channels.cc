#include "runtime/tree_channels.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace hvdtune {
TreeChannels::TreeChannels(Mesh& mesh) {
  const int self = mesh.topology.rank;
  if (mesh.parent) parent_.emplace(std::move(*mesh.parent), self);
  for (SecureChannel& channel : mesh.children) children_.emplace_back(std::move(channel), self);
  mesh.parent.reset();
  mesh.children.clear();
}

bool TreeChannels::has_left(int rank) const {
  return std::ranges::find(left_ranks_, rank) != left_ranks_.end();
}

void TreeChannels::on_rank_left(int rank) {
  if (!has_left(rank)) left_ranks_.push_back(rank);
}

void TreeChannels::send_up(const std::vector<uint8_t>& announce) {
  if (!parent_ || has_left(parent_->peer())) return;
  ++traffic_.messages_sent;
  traffic_.bytes_sent += announce.size();
  parent_->queue(FrameKind::kAnnounce, announce);
}

void TreeChannels::send_down(Bytes cycle, const StopSignal& stop) {
  for (FramedChannel& child : children_) {
    if (has_left(child.peer())) continue;
    ++traffic_.messages_sent;
    traffic_.bytes_sent += cycle.size();
    child.send(FrameKind::kCycle, cycle, Deadline::never(), stop);
  }
}

void TreeChannels::receive(const Take& take) {
  if (parent_) {
    try {
      parent_->flush();
      receive_from(0, *parent_, take);
    } catch (const Error& error) {
      // Once a rank has shut down the others follow, without further notice where the way to
      // rank 0 is gone.
      if (error.code() != ErrorCode::kRankLost || left_ranks_.empty()) throw;
      on_rank_left(parent_->peer());
    }
  }
  for (size_t i = 0; i < children_.size(); ++i) receive_from(i + 1, children_[i], take);
}

void TreeChannels::receive_from(size_t branch, FramedChannel& channel, const Take& take) {
  const FrameKind wanted = branch == 0 ? FrameKind::kCycle : FrameKind::kAnnounce;
  while (!has_left(channel.peer())) {
    const std::optional<Frame> frame = channel.receive();
    if (!frame) return;
    if (frame->kind != wanted) {
      throw Error(ErrorCode::kInternal,
                  "rank " + std::to_string(channel.peer()) + " sent an unexpected message",
                  channel.peer());
    }
    ++traffic_.messages_received;
    traffic_.bytes_received += frame->payload.size();
    take(branch, *frame);
  }
}

size_t TreeChannels::undelivered_bytes() {
  size_t bytes = parent_ ? parent_->undelivered_bytes() : 0;
  for (FramedChannel& child : children_) bytes += child.undelivered_bytes();
  return bytes;
}

void TreeChannels::add_to(std::vector<pollfd>& polls) const {
  if (parent_ && !has_left(parent_->peer())) polls.push_back(poll_entry(*parent_));
  for (const FramedChannel& child : children_) {
    if (!has_left(child.peer())) polls.push_back(poll_entry(child));
  }
}

}  // namespace hvdtune
