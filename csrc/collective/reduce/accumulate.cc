#include "collective/reduce/accumulate.h"

namespace hvdtune {

void fold_in(const Reduction& reduction, const uint8_t* input, uint8_t* accumulator, size_t count,
             bool first) {
  const Kernels& kernels = kernels_for(reduction.dtype, reduction.op);
  (first ? kernels.load : kernels.fold)(input, accumulator, count, reduction.prescale);
}

void combine(const Reduction& reduction, const uint8_t* other, uint8_t* accumulator, size_t count) {
  kernels_for(reduction.dtype, reduction.op).combine(other, accumulator, count);
}

void store(const Reduction& reduction, const uint8_t* accumulator, uint8_t* out, size_t count) {
  const int divisor = reduction.op == ReduceOp::kAverage ? reduction.ranks : 1;
  kernels_for(reduction.dtype, reduction.op)
      .store(accumulator, out, count, divisor, reduction.postscale);
}

}  // namespace hvdtune
