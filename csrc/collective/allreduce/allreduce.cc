#include "collective/allreduce/allreduce.h"

#include <array>

#include "collective/allreduce/pipelined.h"
#include "collective/allreduce/shared.h"
#include "collective/group_shape.h"

namespace hvdtune {
namespace {

// With one rank there is nothing to fold, but scaling and averaging still apply.
void allreduce_alone(Group& group, const Reduction& reduction, const Payload& payload,
                     size_t chunk_bytes) {
  reduce_in_turn(group, reduction, payload, chunk_bytes, [&](uint8_t* data, size_t count) {
    const std::array<const uint8_t*, 1> inputs = {data};
    group.observe(Phase::kReduce, count * size_of(reduction.dtype),
                  [&] { reduce_all(reduction, inputs, group.host_sizes(), data, count); });
  });
}

void allreduce_on_host(Group& group, const Reduction& reduction, const Payload& payload,
                       size_t chunk_bytes) {
  allreduce_shared(group, reduction, payload, chunk_bytes,
                   shared_limits(group.topology().local_size, group.costs()));
}

// By Algorithm.
constexpr std::array<AllreduceFunction*, kAlgorithmCount> kFunctions = {
    allreduce_alone, allreduce_on_host,     allreduce_direct,           allreduce_doubling,
    allreduce_chain, allreduce_ring,        allreduce_halving_doubling, allreduce_tree,
    allreduce_torus, allreduce_hierarchical};

}  // namespace

void allreduce_by(Algorithm algorithm, Group& group, const Reduction& reduction,
                  const Payload& payload, size_t chunk_bytes) {
  if (payload.bytes() == 0) return;
  kFunctions[static_cast<size_t>(algorithm)](group, reduction, payload, chunk_bytes);
}

void allreduce(Group& group, const Reduction& reduction, const Payload& payload,
               const Setting& setting) {
  allreduce_by(choose(OpType::kAllreduce, payload.bytes(), shape_of(group), setting), group,
               reduction, payload, static_cast<size_t>(setting.chunk_bytes) / 64 * 64);
}

}  // namespace hvdtune
