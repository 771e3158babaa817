#include "collective/reduce/reduce.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace hvdtune {
namespace {

// Two accumulators of this many elements stay in the first-level cache.
constexpr size_t kBlock = 1024;
constexpr size_t kAccumulatorMax = 8;

void fold_host(const Kernels& kernels, const Reduction& reduction,
               std::span<const uint8_t* const> inputs, size_t offset_bytes, void* acc,
               size_t count) {
  kernels.load(inputs[0] + offset_bytes, acc, count, reduction.prescale);
  for (const uint8_t* input : inputs.subspan(1)) {
    kernels.fold(input + offset_bytes, acc, count, reduction.prescale);
  }
}

int divisor(const Reduction& reduction) {
  return reduction.op == ReduceOp::kAverage ? reduction.ranks : 1;
}

}  // namespace

size_t accumulator_bytes(const Reduction& reduction) {
  return kernels_for(reduction.dtype, reduction.op).accumulator_bytes;
}

void reduce_all(const Reduction& reduction, std::span<const uint8_t* const> inputs,
                std::span<const int> host_sizes, uint8_t* out, size_t count,
                std::span<uint8_t* const> also) {
  const Kernels& kernels = kernels_for(reduction.dtype, reduction.op);
  const size_t element = size_of(reduction.dtype);
  const bool is_scaled = reduction.prescale != 1.0 || reduction.postscale != 1.0;
  if (inputs.size() == 2 && host_sizes.size() == 1 && also.size() <= 1 && !is_scaled) {
    return kernels.pair(inputs[0], inputs[1], out, also.empty() ? nullptr : also.front(), count,
                        divisor(reduction));
  }
  alignas(64) std::array<uint8_t, kBlock * kAccumulatorMax> total;
  alignas(64) std::array<uint8_t, kBlock * kAccumulatorMax> partial;
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t block = std::min(kBlock, count - at);
    size_t first = 0;
    for (const int size : host_sizes) {
      const auto host = inputs.subspan(first, static_cast<size_t>(size));
      uint8_t* acc = first == 0 ? total.data() : partial.data();
      fold_host(kernels, reduction, host, at * element, acc, block);
      if (first != 0) kernels.combine(partial.data(), total.data(), block);
      first += host.size();
    }
    uint8_t* result = out + at * element;
    kernels.store(total.data(), result, block, divisor(reduction), reduction.postscale);
    for (uint8_t* other : also) std::memcpy(other + at * element, result, block * element);
  }
}

void reduce_host(const Reduction& reduction, std::span<const uint8_t* const> inputs,
                 uint8_t* accumulator, size_t count) {
  const Kernels& kernels = kernels_for(reduction.dtype, reduction.op);
  const size_t element = size_of(reduction.dtype);
  for (size_t at = 0; at < count; at += kBlock) {
    fold_host(kernels, reduction, inputs, at * element,
              accumulator + at * kernels.accumulator_bytes, std::min(kBlock, count - at));
  }
}

void reduce_partials(const Reduction& reduction, std::span<uint8_t* const> partials, uint8_t* out,
                     size_t count) {
  const Kernels& kernels = kernels_for(reduction.dtype, reduction.op);
  for (const uint8_t* other : partials.subspan(1)) kernels.combine(other, partials[0], count);
  kernels.store(partials[0], out, count, divisor(reduction), reduction.postscale);
}

}  // namespace hvdtune
