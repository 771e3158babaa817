#include <cpuid.h>

#include "collective/reduce/kernels.h"

namespace hvdtune {
namespace {

// Halves to floats and back; clang's __builtin_cpu_supports does not know it.
bool has_f16c() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace

const Kernels& kernels_for(DType dtype, ReduceOp op) {
  static const auto chosen = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
                                 ? &avx512::kernels
                             : __builtin_cpu_supports("avx2") && has_f16c() ? &avx2::kernels
                                                                            : &baseline::kernels;
  return chosen(dtype, op);
}

}  // namespace hvdtune
