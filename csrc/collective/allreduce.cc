#include "collective/allreduce.h"

#include <cstring>

namespace hvdtune {

AllreduceAlgorithm choose_allreduce(const Topology& topology, bool homogeneous, bool shared,
                                    const Setting& setting) {
  if (topology.size == 1) return AllreduceAlgorithm::kCopy;
  if (topology.hosts.size() == 1) {
    return shared ? AllreduceAlgorithm::kShared : AllreduceAlgorithm::kDirect;
  }
  if (setting.hierarchical_allreduce && homogeneous && (shared || topology.local_size == 1)) {
    return AllreduceAlgorithm::kHierarchical;
  }
  return AllreduceAlgorithm::kDirect;
}

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

void allreduce(Group& group, const Reduction& reduction, const Payload& payload,
               const Setting& setting) {
  const auto chunk_bytes = static_cast<size_t>(setting.chunk_bytes) / 64 * 64;
  switch (
      choose_allreduce(group.topology(), group.homogeneous(), group.arena() != nullptr, setting)) {
    case AllreduceAlgorithm::kCopy:
      return allreduce_alone(group, reduction, payload, chunk_bytes);
    case AllreduceAlgorithm::kShared:
      return allreduce_shared(group, reduction, payload, chunk_bytes);
    case AllreduceAlgorithm::kDirect:
      return allreduce_direct(group, reduction, payload, chunk_bytes);
    case AllreduceAlgorithm::kHierarchical:
      return allreduce_hierarchical(group, reduction, payload, chunk_bytes);
  }
}

}  // namespace hvdtune
