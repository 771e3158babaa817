// The reduction that every algorithm promises, written as plainly as can be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

#include "base/half.h"
#include "collective/reduce/reduce.h"

namespace hvdtune::testing {

using Buffer = std::vector<uint8_t>;

template <typename T>
auto widened(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Bfloat16>) {
    return to_float(value);
  } else if constexpr (std::is_integral_v<T> && sizeof(T) < 4) {
    return static_cast<int32_t>(value);
  } else {
    return value;
  }
}

template <typename T, typename Wide>
T rounded(Wide value) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(value);
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return to_bfloat16(value);
  } else {
    return static_cast<T>(value);
  }
}

template <typename Wide>
Wide folded(ReduceOp op, Wide a, Wide b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    default:
      return a + b;
  }
}

// `inputs` by rank, `hosts` the ranks of each host. Values must not overflow.
template <typename T>
Buffer naive_reduction(const Reduction& reduction, const std::vector<Buffer>& inputs,
                       const std::vector<std::vector<int>>& hosts) {
  using Wide = decltype(widened(T{}));
  const size_t count = inputs[0].size() / sizeof(T);
  Buffer output(inputs[0].size());
  const auto contribution = [&](int rank, size_t i) {
    T value;
    std::memcpy(&value, inputs[static_cast<size_t>(rank)].data() + i * sizeof(T), sizeof value);
    return static_cast<Wide>(widened(value) * static_cast<Wide>(reduction.prescale));
  };
  for (size_t i = 0; i < count; ++i) {
    Wide total{};
    for (size_t host = 0; host < hosts.size(); ++host) {
      Wide partial = contribution(hosts[host][0], i);
      for (size_t k = 1; k < hosts[host].size(); ++k) {
        partial = folded(reduction.op, partial, contribution(hosts[host][k], i));
      }
      total = host == 0 ? partial : folded(reduction.op, total, partial);
    }
    if (reduction.op == ReduceOp::kAverage) total = total / static_cast<Wide>(reduction.ranks);
    const T result = rounded<T>(total * static_cast<Wide>(reduction.postscale));
    std::memcpy(output.data() + i * sizeof(T), &result, sizeof result);
  }
  return output;
}

// Values of very different size, so that the order of additions shows.
template <typename T>
Buffer random_values(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Buffer buffer(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    const auto fraction = static_cast<float>(random() % 2000) / 1000.0F - 1.0F;
    const auto scale = static_cast<float>(1U << random() % 12);
    T value;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random() % 5);
    } else if constexpr (std::is_same_v<T, double>) {
      value = static_cast<double>(fraction) / 3.0 * scale;
    } else {
      value = rounded<T>(fraction * scale);
    }
    std::memcpy(buffer.data() + i * sizeof(T), &value, sizeof value);
  }
  return buffer;
}

}  // namespace hvdtune::testing
