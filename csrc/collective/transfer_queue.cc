#include "collective/transfer_queue.h"

#include <algorithm>

#include "base/status.h"
#include "transport/backoff.h"

namespace hvdtune {

size_t Flow::lane_of(int rank) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].rank == rank) return i;
  }
  lanes_.push_back({rank, {}, {}});
  Transfer transfer;
  transfer.link = &group_.link(rank);
  transfers_.push_back(transfer);
  return lanes_.size() - 1;
}

void Flow::send(int rank, const uint8_t* data, size_t bytes, Batch& batch) {
  if (bytes == 0) return;
  const size_t lane = lane_of(rank);
  // only ever read: the links take sends as const
  lanes_[lane].out.pieces.push_back({const_cast<uint8_t*>(data), bytes, &batch.sends});
  ++batch.sends;
  ++queued_;
  advance(lane);
}

void Flow::recv(int rank, uint8_t* data, size_t bytes, Batch& batch) {
  if (bytes == 0) return;
  const size_t lane = lane_of(rank);
  lanes_[lane].in.pieces.push_back({data, bytes, &batch.receives});
  ++batch.receives;
  ++queued_;
  advance(lane);
}

void Flow::await_sent(const Batch& batch) {
  wait_until([&] { return batch.sends == 0; }, &Lane::out, &batch.sends);
}

void Flow::await_received(const Batch& batch) {
  wait_until([&] { return batch.receives == 0; }, &Lane::in, &batch.receives);
}

void Flow::finish() {
  wait_until([&] { return queued_ == 0; }, &Lane::in, nullptr);
}

// Takes what is done out of the lane's queues and puts the next pieces into its transfer.
void Flow::advance(size_t lane) {
  Transfer& transfer = transfers_[lane];
  const auto turn = [&](Queue& queue, size_t& total, size_t& done) {
    if (total > 0 && done == total) {
      --*queue.pieces[queue.next].counter;
      --queued_;
      moved_bytes_ += total;
      ++queue.next;
      total = done = 0;
    }
    if (queue.next == queue.pieces.size()) {
      queue.pieces.clear();
      queue.next = 0;
      return static_cast<uint8_t*>(nullptr);
    }
    total = queue.pieces[queue.next].bytes;
    return queue.pieces[queue.next].data;
  };
  transfer.send = turn(lanes_[lane].out, transfer.send_bytes, transfer.sent);
  transfer.recv = turn(lanes_[lane].in, transfer.recv_bytes, transfer.received);
}

Pass Flow::pass() {
  const Pass result = move_once(transfers_);
  for (size_t lane = 0; lane < lanes_.size(); ++lane) advance(lane);
  return result;
}

// The only peer with pieces that `counter` counts (null: any) still to come, -1 if it is not one.
int Flow::only_lacking(Queue Lane::* queue, const size_t* counter) const {
  int only = -1;
  for (const Lane& lane : lanes_) {
    const auto& [pieces, next] = lane.*queue;
    const bool lacks = std::any_of(
        pieces.begin() + static_cast<ptrdiff_t>(next), pieces.end(),
        [&](const Piece& piece) { return counter == nullptr || piece.counter == counter; });
    if (!lacks) continue;
    if (only >= 0) return -1;
    only = lane.rank;
  }
  return only;
}

// Who alone keeps this rank waiting, and since when.
class Flow::Lateness {
 public:
  explicit Lateness(Group& group) : group_(group) {}
  ~Lateness() { note(-1); }
  Lateness(const Lateness&) = delete;
  Lateness& operator=(const Lateness&) = delete;

  void note(int peer) {
    if (peer == peer_) return;
    if (peer_ >= 0 && now_ns() - since_ns_ >= kShortestNs) {
      group_.observed(Phase::kPeer, since_ns_, 0, peer_);
    }
    peer_ = peer;
    since_ns_ = peer >= 0 ? now_ns() : 0;
  }

 private:
  static constexpr uint64_t kShortestNs = 20'000;

  Group& group_;
  int peer_ = -1;
  uint64_t since_ns_ = 0;
};

template <typename Done>
void Flow::wait_until(Done done, Queue Lane::* queue, const size_t* counter) {
  if (queued_ == 0) return;
  const uint64_t begin = now_ns();
  // With one peer there is nobody it could be later than.
  const bool compares = lanes_.size() > 1 && group_.observed();
  Lateness lateness(group_);
  int idle = 0;
  moved_bytes_ = 0;
  for (bool first = true; first || !done(); first = false) {
    const Pass passed = pass();
    if (compares) lateness.note(only_lacking(queue, counter));
    if (passed != Pass::kIdle) {
      idle = 0;
      continue;
    }
    if (group_.stop().raised()) {
      throw Error(ErrorCode::kShutdown, "stopped in the middle of an exchange");
    }
    if (done()) break;
    if (idle < group_.spins()) {
      spin_politely(idle++);
    } else {
      wait_for_any(transfers_, Deadline::never(), group_.stop(), polls_);
    }
  }
  group_.observed(Phase::kExchange, begin, moved_bytes_);
}

}  // namespace hvdtune
