// The loops of a reduction, one table per instruction set, chosen once at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/reduce_op.h"

namespace hvdtune {

// Accumulators: float for float16, bfloat16 and float32; int32 for integers up to 32 bits; the type
// itself otherwise. bool is reduced as 0 and 1.
struct Kernels {
  size_t accumulator_bytes;
  // acc[i] = in[i] * prescale
  void (*load)(const void* in, void* acc, size_t count, double prescale);
  // acc[i] = acc[i] op (in[i] * prescale)
  void (*fold)(const void* in, void* acc, size_t count, double prescale);
  // acc[i] = acc[i] op other[i]
  void (*combine)(const void* other, void* acc, size_t count);
  // out[i] = acc[i] / divisor * postscale, rounded once
  void (*store)(const void* acc, void* out, size_t count, int divisor, double postscale);
  // load(a), fold(b) and store in one pass, unscaled, with the same result. `out` and `also` may be
  // a or b. The result is stored at `also`, too, unless that is null.
  void (*pair)(const void* a, const void* b, void* out, void* also, size_t count, int divisor);
};

// The set for this processor. REQUIRES: is_reducible(dtype), in each of these.
const Kernels& kernels_for(DType dtype, ReduceOp op);

// One per instruction set, from kernels.cc compiled with other flags; the last two exist on x86-64
// only.
namespace baseline {
const Kernels& kernels(DType dtype, ReduceOp op);
}
namespace avx2 {
const Kernels& kernels(DType dtype, ReduceOp op);
}
namespace avx512 {
const Kernels& kernels(DType dtype, ReduceOp op);
}

}  // namespace hvdtune
