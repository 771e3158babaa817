#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/partition.h"
#include "collective/reduce/accumulate.h"

namespace hvdtune {
namespace {

enum Area : size_t { kTotals = 1, kReceived };

class RingAllreduce {
 public:
  RingAllreduce(Group& group, const Reduction& reduction)
      : group_(group),
        reduction_(reduction),
        element_(size_of(reduction.dtype)),
        wide_(accumulator_bytes(reduction)) {}

  void reduce(uint8_t* data, size_t count) {
    count_ = count;
    totals_ = group_.scratch().take(kTotals, count * wide_);
    group_.observe(Phase::kPack, count * element_,
                   [&] { fold_in(reduction_, data, totals_, count, true); });
    for (int step = 1; step < group_.size(); ++step) fold_share(step);
    const ElementRange done = share(1);
    store(reduction_, totals_ + done.begin * wide_, data + done.begin * element_, done.count);
    for (int step = 1; step < group_.size(); ++step) pass_result(data, step);
  }

 private:
  int neighbour(int distance) const {
    return (group_.rank() + distance + group_.size()) % group_.size();
  }
  // Counted from this rank's own.
  ElementRange share(int distance) const {
    return part_of(count_, group_.size(), neighbour(distance), element_);
  }

  void fold_share(int step) {
    const ElementRange out = share(1 - step);
    const ElementRange in = share(-step);
    uint8_t* received = group_.scratch().take(kReceived, in.count * wide_);
    swap(totals_ + out.begin * wide_, out.count * wide_, received, in.count * wide_);
    group_.observe(Phase::kReduce, in.count * wide_,
                   [&] { combine(reduction_, received, totals_ + in.begin * wide_, in.count); });
  }

  void pass_result(uint8_t* result, int step) {
    const ElementRange out = share(2 - step);
    const ElementRange in = share(1 - step);
    swap(result + out.begin * element_, out.count * element_, result + in.begin * element_,
         in.count * element_);
  }

  // Sends to the rank after this one, receives from the one before.
  void swap(const uint8_t* send, size_t send_bytes, uint8_t* recv, size_t recv_bytes) {
    Transfer transfers[2];
    transfers[0] = {&group_.link(neighbour(1)), send, send_bytes};
    transfers[1] = {&group_.link(neighbour(-1)), nullptr, 0, recv, recv_bytes};
    group_.exchange(transfers);
  }

  Group& group_;
  const Reduction& reduction_;
  size_t element_;
  size_t wide_;
  size_t count_ = 0;
  uint8_t* totals_ = nullptr;
};

}  // namespace

void allreduce_ring(Group& group, const Reduction& reduction, const Payload& payload,
                    size_t chunk_bytes) {
  // a share of it is what the other algorithms call a chunk
  const size_t turn = chunk_bytes * static_cast<size_t>(group.size());
  RingAllreduce ring(group, reduction);
  reduce_in_turn(group, reduction, payload, turn,
                 [&](uint8_t* data, size_t count) { ring.reduce(data, count); });
}

}  // namespace hvdtune
