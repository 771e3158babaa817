#include "collective/allreduce/allreduce.h"

#include <algorithm>

#include "collective/allreduce/shared.h"
#include "collective/group_shape.h"

namespace hvdtune {
namespace {

// With one rank there is nothing to fold, but scaling and averaging still apply.
void allreduce_alone(Group& group, const Reduction& reduction, const Payload& payload,
                     size_t chunk_bytes) {
  const size_t element = size_of(reduction.dtype);
  const int one = 1;
  for (size_t at = 0; at < payload.bytes(); at += chunk_bytes) {
    const size_t bytes = std::min(chunk_bytes, payload.bytes() - at);
    uint8_t* in = group.scratch().take(0, chunk_bytes);
    uint8_t* out = group.scratch().take(1, chunk_bytes);
    group.observe(Phase::kPack, bytes, [&] { payload.pack(at, bytes, in); });
    const uint8_t* const inputs[] = {in};
    group.observe(Phase::kReduce, bytes,
                  [&] { reduce_all(reduction, inputs, {&one, 1}, out, bytes / element); });
    group.observe(Phase::kUnpack, bytes, [&] { payload.unpack(at, bytes, out); });
  }
}

}  // namespace

void allreduce_by(Algorithm algorithm, Group& group, const Reduction& reduction,
                  const Payload& payload, size_t chunk_bytes) {
  if (payload.bytes() == 0) return;
  switch (algorithm) {
    case Algorithm::kAlone:
      return allreduce_alone(group, reduction, payload, chunk_bytes);
    case Algorithm::kShared:
      return allreduce_shared(group, reduction, payload, chunk_bytes,
                              shared_limits(group.topology().local_size));
    case Algorithm::kDirect:
      return allreduce_direct(group, reduction, payload, chunk_bytes);
    case Algorithm::kDoubling:
      return allreduce_doubling(group, reduction, payload, chunk_bytes);
    case Algorithm::kChain:
      return allreduce_chain(group, reduction, payload, chunk_bytes);
    case Algorithm::kRing:
      return allreduce_ring(group, reduction, payload, chunk_bytes);
    case Algorithm::kHalvingDoubling:
      return allreduce_halving_doubling(group, reduction, payload, chunk_bytes);
    case Algorithm::kTree:
      return allreduce_tree(group, reduction, payload, chunk_bytes);
    case Algorithm::kTorus:
      return allreduce_torus(group, reduction, payload, chunk_bytes);
    case Algorithm::kHierarchical:
      return allreduce_hierarchical(group, reduction, payload, chunk_bytes);
  }
}

void allreduce(Group& group, const Reduction& reduction, const Payload& payload,
               const Setting& setting) {
  allreduce_by(choose(OpType::kAllreduce, payload.bytes(), shape_of(group), setting), group,
               reduction, payload, static_cast<size_t>(setting.chunk_bytes) / 64 * 64);
}

}  // namespace hvdtune
