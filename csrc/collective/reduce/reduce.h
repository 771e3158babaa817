// The canonical reduction: within a host the contributions are folded in rank order, then the
// hosts' partial results in host order, in the accumulator type throughout, rounded once. Every
// allreduce algorithm computes exactly this, so all give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/reduce/kernels.h"

namespace hvdtune {

struct Reduction {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1.0;   // applied to each contribution
  double postscale = 1.0;  // applied to the result
  int ranks = 1;           // what kAverage divides by
};

size_t accumulator_bytes(const Reduction& reduction);

// `inputs` holds the contributions of all ranks, host after host; `host_sizes` how many each host
// has. `out` holds `count` elements; it may be one of the inputs but not overlap one otherwise. The
// result is written to each of `also`, too, for which the same holds.
void reduce_all(const Reduction& reduction, std::span<const uint8_t* const> inputs,
                std::span<const int> host_sizes, uint8_t* out, size_t count,
                std::span<uint8_t* const> also = {});

// One host's partial result, in the accumulator type.
void reduce_host(const Reduction& reduction, std::span<const uint8_t* const> inputs,
                 uint8_t* accumulator, size_t count);

// The result from all hosts' partial results. Overwrites partials[0].
void reduce_partials(const Reduction& reduction, std::span<uint8_t* const> partials, uint8_t* out,
                     size_t count);

}  // namespace hvdtune
