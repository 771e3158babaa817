// Allreduce, in several algorithms, and the choice among them.
#pragma once

#include "base/knob.h"
#include "collective/choose.h"
#include "collective/group.h"
#include "collective/payload.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// Reduces the payload's inputs over all ranks into its outputs.
//
// Algorithms are described with n ranks, h hosts, D bytes of payload; "wide" bytes are those of
// accumulators: float32 for float16 and bfloat16, int32 for smaller integers. All but the last
// three give the same bits.
void allreduce(Group& group, const Reduction& reduction, const Payload& payload,
               const Setting& setting);
void allreduce_by(Algorithm algorithm, Group& group, const Reduction& reduction,
                  const Payload& payload, size_t chunk_bytes);

// What all algorithms are.
using AllreduceFunction = void(Group& group, const Reduction& reduction, const Payload& payload,
                               size_t chunk_bytes);

// Any topology. Each rank sends share j of its chunk to rank j, reduces the n contributions to its
// own share in canonical order and sends the result to all: two steps of n-1 messages, 2 (n-1)/n D
// in each direction per rank. Pipelined: contributions to a chunk, and results of an earlier one,
// are on the network while a third is reduced.
AllreduceFunction allreduce_direct;

// Any topology, small payloads. The contributions are gathered by recursive doubling (allgather.h)
// and every rank reduces all of them: ceil(log2 n) steps of one message, (n-1) D per rank.
AllreduceFunction allreduce_doubling;

// Any topology. Chunks go along the canonical order of ranks, each folding in its contribution, and
// back as results: n-1 steps each way, D wide and D bytes per rank in each direction, and only
// neighbours talk. Ranks of a host fold a partial result, which the last of them combines with the
// total of the hosts before: that keeps the canonical order.
AllreduceFunction allreduce_chain;

// Several hosts of equal size. Ranks of a host share out the chunk as in allreduce_shared, each
// reducing its share to a partial result; ranks of equal local rank exchange partials across hosts
// as in allreduce_direct. The network carries 2 (h-1)/h of 1/local_size of the data per rank, on
// the way in as accumulators: float16 and bfloat16 travel as float32 there, 1.5 times the volume
// in all. Pipelined: partials of a chunk, sums of the one before and results of the one before
// that are on the network at once, so that it idles only at the start and the end.
AllreduceFunction allreduce_hierarchical;

// Several hosts of equal size, as a grid: a row is a host, a column the ranks of equal local rank.
// Shares are exchanged along the row, partials and results along the column, results along the
// row: hierarchical without shared memory. 2 (n-1)/n D per rank as direct, of which only
// 1/local_size crosses hosts, in 2 (local_size - 1) + 2 (h-1) messages a chunk.
// Source: Mikami et al., Massively Distributed SGD: ImageNet/ResNet-50 Training in a Flash (2018).
AllreduceFunction allreduce_torus;

// Not canonical, only by name: share j is folded around the ring beginning at rank j+1, in wide
// bytes, and results go round once more. 2 (n-1) steps, (n-1)/n D wide and (n-1)/n D per rank; only
// neighbours talk. Source: Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms (2009).
AllreduceFunction allreduce_ring;

// Not canonical, only by name: partners at distance 1, 2, 4 ... exchange halves of what is left,
// fold them in wide bytes, and give the results back the same way. 2 log2 n steps, (n-1)/n D wide
// and (n-1)/n D per rank; the ranks beyond a power of two first hand all they have to a partner.
// Source: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH
// (2005).
AllreduceFunction allreduce_halving_doubling;

// Not canonical, only by name: partial results go up a binomial tree in wide bytes, the result
// comes down it. 2 ceil(log2 n) steps, at most D wide log2 n per rank.
AllreduceFunction allreduce_tree;

}  // namespace hvdtune
