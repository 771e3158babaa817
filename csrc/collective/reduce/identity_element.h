// The contribution of a rank without data of its own to a reduction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace hvdtune {

// Fills `out` with `count` elements that change no result: 0 for sum, average and Adasum, 1 for
// product, the largest and the lowest value (infinities of floating types) for min and max.
//
// They are identity elements before scaling: a prescale other than 1 changes that for product,
// and a negative one for min and max.
//
// REQUIRES: is_reducible(dtype).
void fill_identity(DType dtype, ReduceOp op, uint8_t* out, size_t count);

}  // namespace hvdtune
