// Reductions as rings do them: step by step, rounded to the dtype at each, in an order that depends
// on where the element lies. Who needs the same bits everywhere must not rely on them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_gpu {

size_t bytes_of_dtype(int dtype);  // 0 if there is none of that number
bool is_floating(int dtype);

struct Reduction {
  int dtype;
  int op;       // one of ncclSum to ncclMin
  bool scales;  // every contribution is multiplied by `scale` first
  double scale;
  int divisor;  // integers are divided by it at the end
};

// `inputs[rank]` and `out` point to `count` elements, of which the first is number `first`.
void reduce(const Reduction& how, const char* const* inputs, int ranks, size_t first, size_t count,
            char* out);

// The value of an element, for ncclRedOpCreatePreMulSum.
double value_of(int dtype, const void* element);

}  // namespace fake_gpu
