// Sends and receives that go on while their rank computes.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/group.h"
#include "transport/exchange.h"

namespace hvdtune {

// Every link carries what is queued on it in order, so the ranks of an algorithm queue in the same
// order. Nothing blocks but the awaits, and each of them moves whatever can be moved on all links:
// the network stays busy with one chunk while another is reduced, as far as the kernel's buffers
// reach.
//
// Memory that is queued belongs to the queue until its Pending counts say so. Throws as exchange()
// does.
class TransferQueue {
 public:
  // How many of the sends and receives that were queued with it are still under way.
  struct Pending {
    size_t sends = 0;
    size_t receives = 0;
  };

  explicit TransferQueue(Group& group) : group_(group) {}
  TransferQueue(const TransferQueue&) = delete;
  TransferQueue& operator=(const TransferQueue&) = delete;

  // Nothing is queued for zero bytes. `pending` must outlive the transfer.
  void send(int rank, const uint8_t* data, size_t bytes, Pending& pending);
  void recv(int rank, uint8_t* data, size_t bytes, Pending& pending);

  void await_sent(const Pending& pending);
  void await_received(const Pending& pending);
  // Everything that is queued.
  void finish();

 private:
  struct QueuedTransfer {
    uint8_t* data;
    size_t bytes;
    size_t* counter;
  };
  // Pieces from `next` on are still to come; the one at `next` is in this direction's transfer.
  struct Queue {
    std::vector<QueuedTransfer> pieces;
    size_t next = 0;
  };
  struct RankQueues {
    int rank;
    Queue out;
    Queue in;
  };
  class Lateness;

  size_t index_of(int rank);
  Pass pass();
  void advance(size_t index);
  int only_lacking(Queue RankQueues::* queue, const size_t* counter) const;
  template <typename Done>
  void wait_until(Done done, Queue RankQueues::* queue, const size_t* counter);

  Group& group_;
  std::vector<RankQueues> queues_;
  std::vector<Transfer> transfers_;  // one per element of queues_
  std::vector<pollfd> polls_;
  size_t queued_ = 0;
  size_t moved_bytes_ = 0;
};

}  // namespace hvdtune
