#include "collective/reduce/kernels.h"

namespace hvdtune {

const Kernels& kernels_for(DType dtype, ReduceOp op) {
  static const auto chosen = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                                 ? &avx512::kernels
                             : __builtin_cpu_supports("avx2") ? &avx2::kernels
                                                              : &baseline::kernels;
  return chosen(dtype, op);
}

}  // namespace hvdtune
