#include "collective/transfer_queue.h"

#include <algorithm>

#include "base/status.h"
#include "transport/backoff.h"

namespace hvdtune {

size_t TransferQueue::index_of(int rank) {
  for (size_t i = 0; i < queues_.size(); ++i) {
    if (queues_[i].rank == rank) return i;
  }
  queues_.push_back({rank, {}, {}});
  Transfer transfer;
  transfer.link = &group_.link(rank);
  transfers_.push_back(transfer);
  return queues_.size() - 1;
}

void TransferQueue::send(int rank, const uint8_t* data, size_t bytes, Pending& pending) {
  if (bytes == 0) return;
  const size_t index = index_of(rank);
  // only ever read: the links take sends as const
  queues_[index].out.pieces.push_back({const_cast<uint8_t*>(data), bytes, &pending.sends});
  ++pending.sends;
  ++queued_;
  advance(index);
}

void TransferQueue::recv(int rank, uint8_t* data, size_t bytes, Pending& pending) {
  if (bytes == 0) return;
  const size_t index = index_of(rank);
  queues_[index].in.pieces.push_back({data, bytes, &pending.receives});
  ++pending.receives;
  ++queued_;
  advance(index);
}

void TransferQueue::await_sent(const Pending& pending) {
  wait_until([&] { return pending.sends == 0; }, &RankQueues::out, &pending.sends);
}

void TransferQueue::await_received(const Pending& pending) {
  wait_until([&] { return pending.receives == 0; }, &RankQueues::in, &pending.receives);
}

void TransferQueue::finish() {
  wait_until([&] { return queued_ == 0; }, &RankQueues::in, nullptr);
}

// Takes what is done out of the queues of one rank and puts the next into its transfer.
void TransferQueue::advance(size_t index) {
  Transfer& transfer = transfers_[index];
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
  transfer.send = turn(queues_[index].out, transfer.send_bytes, transfer.sent);
  transfer.recv = turn(queues_[index].in, transfer.recv_bytes, transfer.received);
}

Pass TransferQueue::pass() {
  const Pass result = move_once(transfers_);
  for (size_t index = 0; index < queues_.size(); ++index) advance(index);
  return result;
}

// The only peer with pieces that `counter` counts (null: any) still to come, -1 if it is not one.
int TransferQueue::only_lacking(Queue RankQueues::* queue, const size_t* counter) const {
  int only = -1;
  for (const RankQueues& queues : queues_) {
    const auto& [pieces, next] = queues.*queue;
    const bool lacks = std::any_of(pieces.begin() + static_cast<ptrdiff_t>(next), pieces.end(),
                                   [&](const QueuedTransfer& piece) {
                                     return counter == nullptr || piece.counter == counter;
                                   });
    if (!lacks) continue;
    if (only >= 0) return -1;
    only = queues.rank;
  }
  return only;
}

// Who alone keeps this rank waiting, and since when.
class TransferQueue::Lateness {
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
void TransferQueue::wait_until(Done done, Queue RankQueues::* queue, const size_t* counter) {
  if (queued_ == 0) return;
  const uint64_t begin = now_ns();
  // With one peer there is nobody it could be later than.
  const bool compares = queues_.size() > 1 && group_.observed();
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
      ++idle;
      cpu_pause();
    } else {
      wait_for_any(transfers_, Deadline::never(), group_.stop(), polls_);
    }
  }
  group_.observed(Phase::kExchange, begin, moved_bytes_);
}

}  // namespace hvdtune
