#include "collective/reduce/kernels.h"

namespace hvdtune {

const Kernels& kernels_for(DType dtype, ReduceOp op) { return baseline::kernels(dtype, op); }

}  // namespace hvdtune
