#include <algorithm>
#include <vector>

#include "collective/allreduce.h"
#include "collective/share.h"

namespace hvdtune {
namespace {

// Below this a second meeting costs more than reducing everything on every rank.
constexpr size_t kWholeBytes = 8192;

class SharedAllreduce {
 public:
  SharedAllreduce(Group& group, const Reduction& reduction, const Payload& payload)
      : group_(group),
        arena_(*group.arena()),
        reduction_(reduction),
        payload_(payload),
        element_(size_of(reduction.dtype)),
        inputs_(static_cast<size_t>(arena_.local_size())) {}

  void whole(size_t bytes) {
    const int parity = group_.next_parity();
    pack(0, bytes, parity);
    group_.meet();
    uint8_t* out = group_.scratch().take(0, kWholeBytes);
    reduce({0, bytes / element_}, parity, out);
    unpack(0, bytes, out);
  }

  void chunks(size_t chunk_bytes) {
    const size_t total = payload_.bytes();
    size_t bytes = std::min(chunk_bytes, total);
    int parity = group_.next_parity();
    pack(0, bytes, parity);
    for (size_t at = 0; at < total;) {
      const size_t next = at + bytes;
      const size_t next_bytes = std::min(chunk_bytes, total - next);
      const int next_parity = next_bytes > 0 ? group_.next_parity() : parity;
      group_.post();
      // Between chunks the other slots were read before the last meeting, so packing into them need
      // not wait. At the start they may still be read: whole() ends without a meeting.
      const bool ahead = at > 0;
      if (ahead && next_bytes > 0) pack(next, next_bytes, next_parity);
      group_.await_local();
      if (!ahead && next_bytes > 0) pack(next, next_bytes, next_parity);
      const Share mine =
          share_of(bytes / element_, arena_.local_size(), arena_.local_rank(), element_);
      reduce(mine, parity, arena_.result(parity) + mine.begin * element_);
      group_.meet();
      unpack(at, bytes, arena_.result(parity));
      at = next;
      bytes = next_bytes;
      parity = next_parity;
    }
  }

 private:
  void pack(size_t at, size_t bytes, int parity) {
    group_.observe(Phase::kPack, bytes,
                   [&] { payload_.pack(at, bytes, arena_.slot(arena_.local_rank(), parity)); });
  }

  void reduce(Share share, int parity, uint8_t* out) {
    group_.observe(Phase::kReduce, share.count * element_, [&] {
      for (int rank = 0; rank < arena_.local_size(); ++rank) {
        inputs_[static_cast<size_t>(rank)] = arena_.slot(rank, parity) + share.begin * element_;
      }
      reduce_all(reduction_, inputs_, group_.host_sizes(), out, share.count);
    });
  }

  void unpack(size_t at, size_t bytes, const uint8_t* from) {
    group_.observe(Phase::kUnpack, bytes, [&] { payload_.unpack(at, bytes, from); });
  }

  Group& group_;
  Arena& arena_;
  const Reduction& reduction_;
  const Payload& payload_;
  size_t element_;
  std::vector<const uint8_t*> inputs_;
};

}  // namespace

void allreduce_shared(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes) {
  if (payload.bytes() == 0) return;
  SharedAllreduce run(group, reduction, payload);
  if (payload.bytes() <= kWholeBytes) return run.whole(payload.bytes());
  run.chunks(std::min(chunk_bytes, group.arena()->slot_bytes()));
}

}  // namespace hvdtune
