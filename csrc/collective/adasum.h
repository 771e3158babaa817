// Adasum: gradients are added as far as they are orthogonal and averaged as far as they are
// parallel, tensor by tensor.
//
// Two vectors combine to  a (1 - a.b / 2|a|^2) + b (1 - a.b / 2|b|^2); where one is zero, to the
// other. More are combined in a binary tree over the canonical order of ranks: at each level
// neighbours (0, 1), (2, 3) ... combine, an odd last one goes up as it is, until one is left.
// Source: Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake, Barsoum: Scaling
// Distributed Training with Adaptive Summation (2020), equation 7 and section 4.
//
// Every tensor is divided into blocks of 4096 elements from its start. Dot products are sums in
// double of blocks in order, within a block of 8 interleaved lanes; elements are combined in double
// and rounded to the accumulator type (float, or double for float64) at each level, to the element
// type once, at the end. So the bits depend on the tensor and the topology alone.
#pragma once

#include "base/dtype.h"
#include "base/knob.h"
#include "collective/group.h"
#include "collective/payload.h"

namespace hvdtune {

// The floating types; adasum() throws Error(kUsage) for any other.
bool adasum_takes(DType dtype);

// Combines the payload's inputs over all ranks into its outputs, each tensor by itself.
// `prescale` is applied to each contribution, `postscale` to the result.
//
// Each rank gets its share of blocks from all others, carries out the whole tree for it and sends
// the result to all: 2 (n-1)/n of the data in each direction per rank, as a direct allreduce. At
// each level the ranks tell each other their blocks' dot products: 24 bytes per block and pair.
// Keeps twice the payload, and once more in the accumulator type, in scratch memory.
void adasum(Group& group, DType dtype, double prescale, double postscale, const Payload& payload,
            const Setting& setting);

}  // namespace hvdtune
