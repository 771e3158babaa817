#include "arithmetic.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "../include/fake_nccl.h"

namespace fake_gpu {
namespace {

constexpr size_t kElementsOfAnOrder = 256;

// A floating-point format of at most 16 bits.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
  bool saturates;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_at() const { return exponent_bits + mantissa_bits; }
  int most_exponent() const { return (1 << exponent_bits) - 1; }
  uint32_t nan() const { return (1u << sign_at()) - 1; }
  uint32_t greatest() const {
    return has_infinity ? (static_cast<uint32_t>(most_exponent()) << mantissa_bits) - 1 : nan() - 1;
  }

  float decode(uint32_t bits) const {
    const int exponent = static_cast<int>(bits >> mantissa_bits) & most_exponent();
    const int mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
    const float sign = (bits >> sign_at() & 1) != 0 ? -1.0f : 1.0f;
    if (exponent == most_exponent()) {
      if (has_infinity && mantissa == 0) return sign * std::numeric_limits<float>::infinity();
      if (has_infinity || mantissa == (1 << mantissa_bits) - 1) {
        return std::numeric_limits<float>::quiet_NaN();
      }
    }
    const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
    const int power = (exponent == 0 ? 1 : exponent) - bias() - mantissa_bits;
    return sign * std::ldexp(static_cast<float>(whole), power);
  }

  uint32_t encode(float value) const {
    const uint32_t sign = (std::signbit(value) ? 1u : 0u) << sign_at();
    if (std::isnan(value)) return sign | nan();
    const float size = std::fabs(value);
    const uint32_t too_large = sign | (saturates ? greatest() : greatest() + 1);
    if (std::isinf(size)) return too_large;
    int exponent = size == 0.0f ? 1 - bias() : std::max(std::ilogb(size), 1 - bias());
    auto whole = static_cast<uint32_t>(
        std::nearbyint(std::ldexp(static_cast<double>(size), mantissa_bits - exponent)));
    if (whole >> mantissa_bits == 0) return sign | whole;
    if (whole >> (mantissa_bits + 1) != 0) {
      whole >>= 1;
      ++exponent;
    }
    const uint32_t bits = (static_cast<uint32_t>(exponent + bias()) << mantissa_bits) +
                          (whole - (1u << mantissa_bits));
    return bits > greatest() ? too_large : sign | bits;
  }
};

constexpr Format kHalf{5, 10, true, false};
constexpr Format kBfloat{8, 7, true, false};
constexpr Format kE4m3{4, 3, false, true};
constexpr Format kE5m2{5, 2, true, true};

// How elements are read, combined and written.
template <typename T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored stored) { return stored; }
  static Stored store(Value value) { return value; }
};
template <typename T, const Format& format>
struct Narrow {
  using Stored = T;
  using Value = float;
  static Value load(Stored stored) { return format.decode(stored); }
  static Stored store(Value value) { return static_cast<Stored>(format.encode(value)); }
};

template <typename Call>
auto with_dtype(int dtype, Call call) {
  switch (dtype) {
    case ncclInt8:
      return call(Plain<int8_t>{});
    case ncclUint8:
      return call(Plain<uint8_t>{});
    case ncclInt32:
      return call(Plain<int32_t>{});
    case ncclUint32:
      return call(Plain<uint32_t>{});
    case ncclInt64:
      return call(Plain<int64_t>{});
    case ncclUint64:
      return call(Plain<uint64_t>{});
    case ncclFloat16:
      return call(Narrow<uint16_t, kHalf>{});
    case ncclFloat32:
      return call(Plain<float>{});
    case ncclBfloat16:
      return call(Narrow<uint16_t, kBfloat>{});
    case ncclFloat8e4m3:
      return call(Narrow<uint8_t, kE4m3>{});
    case ncclFloat8e5m2:
      return call(Narrow<uint8_t, kE5m2>{});
    default:
      return call(Plain<double>{});
  }
}

// Integers wrap around.
template <typename Value>
Value combined(int op, Value a, Value b) {
  if (op == ncclMax) return a < b ? b : a;
  if (op == ncclMin) return b < a ? b : a;
  if constexpr (std::is_integral_v<Value>) {
    const auto x = static_cast<uint64_t>(a);
    const auto y = static_cast<uint64_t>(b);
    return static_cast<Value>(op == ncclProd ? x * y : x + y);
  } else {
    return op == ncclProd ? a * b : a + b;
  }
}

template <typename Type>
void reduce_elements(const Reduction& how, const char* const* inputs, int ranks, size_t first,
                     size_t count, char* out) {
  using Stored = typename Type::Stored;
  using Value = typename Type::Value;
  const auto input = [&](int rank, size_t i) {
    Stored stored;
    std::memcpy(&stored, inputs[rank] + i * sizeof stored, sizeof stored);
    Value value = Type::load(stored);
    if (!how.scales) return value;
    if constexpr (std::is_integral_v<Value>) {
      return static_cast<Value>(static_cast<uint64_t>(value) *
                                static_cast<uint64_t>(static_cast<int64_t>(how.scale)));
    } else {
      return Type::load(Type::store(static_cast<Value>(value * static_cast<Value>(how.scale))));
    }
  };
  for (size_t i = 0; i < count; ++i) {
    const auto start = static_cast<int>((first + i) / kElementsOfAnOrder % ranks);
    Value total = input(start, i);
    for (int step = 1; step < ranks; ++step) {
      total = Type::load(Type::store(combined(how.op, total, input((start + step) % ranks, i))));
    }
    if constexpr (std::is_integral_v<Value>) {
      if (how.divisor != 1) total = static_cast<Value>(total / static_cast<Value>(how.divisor));
    }
    const Stored stored = Type::store(total);
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

size_t bytes_of_dtype(int dtype) {
  if (dtype < ncclInt8 || dtype > ncclFloat8e5m2) return 0;
  return with_dtype(dtype, [](auto type) { return sizeof(typename decltype(type)::Stored); });
}

bool is_floating(int dtype) {
  return with_dtype(
      dtype, [](auto type) { return std::is_floating_point_v<typename decltype(type)::Value>; });
}

void reduce(const Reduction& how, const char* const* inputs, int ranks, size_t first, size_t count,
            char* out) {
  with_dtype(how.dtype, [&](auto type) {
    reduce_elements<decltype(type)>(how, inputs, ranks, first, count, out);
  });
}

double value_of(int dtype, const void* element) {
  return with_dtype(dtype, [&](auto type) {
    typename decltype(type)::Stored stored;
    std::memcpy(&stored, element, sizeof stored);
    return static_cast<double>(decltype(type)::load(stored));
  });
}

}  // namespace fake_gpu
