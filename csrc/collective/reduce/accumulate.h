// Steps of a reduction in an order of the caller's choosing, for algorithms that fold on the way.
// reduce.h does all of them at once where the order is the canonical one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/reduce/reduce.h"

namespace hvdtune {

// acc = acc op input, or acc = input for the first.
void fold_in(const Reduction& reduction, const uint8_t* input, uint8_t* accumulator, size_t count,
             bool first);
// acc = acc op other, both accumulators.
void combine(const Reduction& reduction, const uint8_t* other, uint8_t* accumulator, size_t count);
// The result from the total.
void store(const Reduction& reduction, const uint8_t* accumulator, uint8_t* out, size_t count);

}  // namespace hvdtune
