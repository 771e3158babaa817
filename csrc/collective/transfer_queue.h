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
// Memory that is queued belongs to the flow until its batch says so. Throws as exchange() does.
class Flow {
 public:
  // What is still under way of the sends and receives that were queued with it.
  struct Batch {
    size_t sends = 0;
    size_t receives = 0;
  };

  explicit Flow(Group& group) : group_(group) {}
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  // Queue; no bytes are no send. The batch must outlive the transfer.
  void send(int rank, const uint8_t* data, size_t bytes, Batch& batch);
  void recv(int rank, uint8_t* data, size_t bytes, Batch& batch);

  void await_sent(const Batch& batch);
  void await_received(const Batch& batch);
  // Everything that is queued.
  void finish();

 private:
  struct Piece {
    uint8_t* data;
    size_t bytes;
    size_t* counter;
  };
  // Pieces from `next` on are still to come; the one at `next` is in the lane's transfer.
  struct Queue {
    std::vector<Piece> pieces;
    size_t next = 0;
  };
  struct Lane {
    int rank;
    Queue out;
    Queue in;
  };
  class Lateness;

  size_t lane_of(int rank);
  Pass pass();
  void advance(size_t lane);
  int only_lacking(Queue Lane::* queue, const size_t* counter) const;
  template <typename Done>
  void wait_until(Done done, Queue Lane::* queue, const size_t* counter);

  Group& group_;
  std::vector<Lane> lanes_;
  std::vector<Transfer> transfers_;  // one per lane
  std::vector<pollfd> polls_;
  size_t queued_ = 0;
  size_t moved_bytes_ = 0;
};

}  // namespace hvdtune
