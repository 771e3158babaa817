#include <bit>
#include <vector>

#include "collective/allreduce/allreduce.h"
#include "collective/allreduce/pipelined.h"
#include "collective/partition.h"
#include "collective/reduce/accumulate.h"

namespace hvdtune {
namespace {

enum Area : size_t { kTotals = 1, kReceived };

// The first 2 * extra ranks stand in pairs: the even one hands its contribution to the odd one and
// gets the result from it, so that a power of two is left.
class HalvingDoubling {
 public:
  HalvingDoubling(Group& group, const Reduction& reduction)
      : group_(group),
        reduction_(reduction),
        element_(size_of(reduction.dtype)),
        wide_(accumulator_bytes(reduction)),
        parts_(static_cast<int>(std::bit_floor(static_cast<unsigned>(group.size())))),
        extra_(group.size() - parts_) {}

  void reduce(uint8_t* data, size_t count) {
    count_ = count;
    result_ = data;
    const size_t bytes = count * element_;
    totals_ = group_.scratch().take(kTotals, count_ * wide_);
    received_ = group_.scratch().take(kReceived, count_ * wide_);
    group_.observe(Phase::kPack, bytes,
                   [&] { fold_in(reduction_, result_, totals_, count_, true); });
    const int rank = group_.rank();
    const bool paired = rank < 2 * extra_;
    if (paired && rank % 2 == 0) {
      swap(rank + 1, totals_, count_ * wide_, nullptr, 0);
      swap(rank + 1, nullptr, 0, result_, bytes);
    } else {
      if (paired) {
        swap(rank - 1, nullptr, 0, received_, count_ * wide_);
        combine(reduction_, received_, totals_, count_);
      }
      halve_and_double(paired ? rank / 2 : rank - extra_);
      if (paired) swap(rank - 1, result_, bytes, nullptr, 0);
    }
  }

 private:
  // Parts [begin, end) of the chunk.
  struct Span {
    int begin;
    int end;
  };

  // `place` is this rank's among the power of two.
  void halve_and_double(int place) {
    Span mine{0, parts_};
    std::vector<Span> wider;
    for (int distance = 1; distance < parts_; distance *= 2) {
      wider.push_back(mine);
      const int middle = (mine.begin + mine.end) / 2;
      Span other{middle, mine.end};
      if ((place & distance) == 0) {
        mine.end = middle;
      } else {
        other = {mine.begin, middle};
        mine.begin = middle;
      }
      fold_half(rank_at(place ^ distance), mine, other);
    }
    const ElementRange own = share(mine);
    store(reduction_, totals_ + own.begin * wide_, result_ + own.begin * element_, own.count);
    for (int distance = parts_ / 2; distance > 0; distance /= 2) {
      const Span whole = wider.back();
      wider.pop_back();
      const Span other =
          mine.begin == whole.begin ? Span{mine.end, whole.end} : Span{whole.begin, mine.begin};
      const ElementRange out = share(mine);
      const ElementRange in = share(other);
      swap(rank_at(place ^ distance), result_ + out.begin * element_, out.count * element_,
           result_ + in.begin * element_, in.count * element_);
      mine = whole;
    }
  }

  void fold_half(int partner, Span mine, Span other) {
    const ElementRange keep = share(mine);
    const ElementRange give = share(other);
    swap(partner, totals_ + give.begin * wide_, give.count * wide_, received_, keep.count * wide_);
    group_.observe(Phase::kReduce, keep.count * wide_, [&] {
      combine(reduction_, received_, totals_ + keep.begin * wide_, keep.count);
    });
  }

  int rank_at(int place) const { return place < extra_ ? 2 * place + 1 : place + extra_; }

  ElementRange share(Span range) const {
    const ElementRange first = part_of(count_, parts_, range.begin, element_);
    const ElementRange last = part_of(count_, parts_, range.end - 1, element_);
    return {first.begin, last.begin + last.count - first.begin};
  }

  void swap(int rank, const uint8_t* send, size_t send_bytes, uint8_t* recv, size_t recv_bytes) {
    Transfer transfer{&group_.link(rank), send, send_bytes, recv, recv_bytes};
    group_.exchange({&transfer, 1});
  }

  Group& group_;
  const Reduction& reduction_;
  size_t element_;
  size_t wide_;
  int parts_;
  int extra_;
  size_t count_ = 0;
  uint8_t* result_ = nullptr;
  uint8_t* totals_ = nullptr;
  uint8_t* received_ = nullptr;
};

}  // namespace

void allreduce_halving_doubling(Group& group, const Reduction& reduction, const Payload& payload,
                                size_t chunk_bytes) {
  // the smallest share of it is what the other algorithms call a chunk
  const size_t turn = chunk_bytes * static_cast<size_t>(group.size());
  HalvingDoubling run(group, reduction);
  reduce_in_turn(group, reduction, payload, turn,
                 [&](uint8_t* data, size_t count) { run.reduce(data, count); });
}

}  // namespace hvdtune
