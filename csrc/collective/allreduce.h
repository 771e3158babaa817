// Allreduce, in three algorithms that give the same bits, and the choice among them.
#pragma once

#include <string_view>

#include "base/knob.h"
#include "collective/group.h"
#include "collective/payload.h"
#include "collective/reduce.h"

namespace hvdtune {

enum class AllreduceAlgorithm : uint8_t { kCopy, kShared, kDirect, kHierarchical };

// Pure: the same on every rank for the same arguments. `shared` says that this rank has an arena; a
// mesh gives one to every host with several ranks, or to none.
AllreduceAlgorithm choose_allreduce(const Topology& topology, bool homogeneous, bool shared,
                                    const Setting& setting);

// Reduces the payload's inputs over all ranks into its outputs.
void allreduce(Group& group, const Reduction& reduction, const Payload& payload,
               const Setting& setting);

// One host. A chunk is packed into this rank's slot; the ranks meet; each reduces its share of the
// chunk from all slots into the common result; they meet again; each unpacks. The next chunk is
// packed before the first meeting is awaited. Two copies and 1 + 1/n reads of the data per rank.
// Chunks too small to share out are reduced whole by every rank, which saves a meeting.
void allreduce_shared(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes);

// Any topology. Each rank sends share j of its chunk to rank j, reduces the n contributions to its
// own share in canonical order and sends the result to all: 2 (n-1)/n of the data in each
// direction per rank, two exchanges per chunk.
void allreduce_direct(Group& group, const Reduction& reduction, const Payload& payload,
                      size_t chunk_bytes);

// Several hosts of equal size. Ranks of a host share out the chunk as in allreduce_shared, each
// reducing its share to a partial result; ranks of equal local rank exchange partials across hosts
// as in allreduce_direct. The network carries 2 (h-1)/h of 1/local_size of the data per rank, in
// the accumulator type on the way in.
void allreduce_hierarchical(Group& group, const Reduction& reduction, const Payload& payload,
                            size_t chunk_bytes);

}  // namespace hvdtune
