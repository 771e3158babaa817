#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/reduce/accumulate.h"

namespace hvdtune {
namespace {

enum Area : size_t { kTotal = 1, kReceived };

void move(Group& group, int rank, const uint8_t* send, size_t send_bytes, uint8_t* recv,
          size_t recv_bytes) {
  Transfer transfer{&group.link(rank), send, send_bytes, recv, recv_bytes};
  group.exchange({&transfer, 1});
}

// A rank's children are at distance 1, 2, 4 ... below the lowest bit of its number; its parent is
// that bit lower.
void reduce_up_and_down(Group& group, const Reduction& reduction, uint8_t* data, size_t count) {
  const int rank = group.rank();
  const size_t bytes = count * size_of(reduction.dtype);
  const size_t wide_bytes = count * accumulator_bytes(reduction);
  uint8_t* total = group.scratch().take(kTotal, wide_bytes);
  uint8_t* received = group.scratch().take(kReceived, wide_bytes);
  fold_in(reduction, data, total, count, true);
  int bit = 1;
  for (; bit < group.size() && (rank & bit) == 0; bit *= 2) {
    if (rank + bit >= group.size()) continue;
    move(group, rank + bit, nullptr, 0, received, wide_bytes);
    group.observe(Phase::kReduce, wide_bytes, [&] { combine(reduction, received, total, count); });
  }
  if (rank == 0) {
    store(reduction, total, data, count);
  } else {
    move(group, rank - bit, total, wide_bytes, nullptr, 0);
    move(group, rank - bit, nullptr, 0, data, bytes);
  }
  std::vector<Transfer> down;
  for (bit /= 2; bit > 0; bit /= 2) {
    if (rank + bit < group.size()) down.push_back({&group.link(rank + bit), data, bytes});
  }
  group.exchange(down);
}

}  // namespace

void allreduce_tree(Group& group, const Reduction& reduction, const Payload& payload,
                    size_t chunk_bytes) {
  reduce_in_turn(group, reduction, payload, chunk_bytes, [&](uint8_t* data, size_t count) {
    reduce_up_and_down(group, reduction, data, count);
  });
}

}  // namespace hvdtune
