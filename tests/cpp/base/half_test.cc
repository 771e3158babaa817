#include "base/half.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check.h"

using namespace hvdtune;

namespace {

// A binary format by its numbers; the reference does its arithmetic in double, which holds every
// intermediate exactly.
struct Format {
  int mantissa_bits;
  int bias;

  int lowest_exponent() const { return 1 - bias; }
  uint32_t infinity() const { return static_cast<uint32_t>(2 * bias + 1) << mantissa_bits; }
};
constexpr Format kHalf = {10, 15};
constexpr Format kBfloat16 = {7, 127};

double reference_value(const Format& format, uint32_t magnitude) {
  const uint32_t mantissa = magnitude & ((1U << format.mantissa_bits) - 1);
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t hidden = exponent == 0 ? 0U : 1U << format.mantissa_bits;
  return std::ldexp(static_cast<double>(hidden | mantissa),
                    std::max(exponent, 1) - format.bias - format.mantissa_bits);
}

// The nearest value, ties to even, of a positive finite one.
uint32_t reference_bits(const Format& format, double value) {
  if (value == 0) return 0;
  const int exponent = std::max(std::ilogb(value), format.lowest_exponent());
  const double scaled = std::nearbyint(std::ldexp(value, format.mantissa_bits - exponent));
  // A carry moves into the exponent by itself.
  const auto bits =
      static_cast<int64_t>(scaled) +
      (static_cast<int64_t>(exponent - format.lowest_exponent()) << format.mantissa_bits);
  return static_cast<uint32_t>(std::min<int64_t>(bits, format.infinity()));
}

template <typename T>
uint16_t narrowed(float value);
template <>
uint16_t narrowed<Half>(float value) {
  return to_half(value).bits;
}
template <>
uint16_t narrowed<Bfloat16>(float value) {
  return to_bfloat16(value).bits;
}

template <typename T>
void check_all_values(const Format& format) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = to_float(T{static_cast<uint16_t>(bits)});
    const uint32_t magnitude = bits & 0x7fffU;
    CHECK_EQ(std::signbit(value), bits >= 0x8000U);
    if (magnitude > format.infinity()) {
      CHECK(std::isnan(value));
      CHECK((narrowed<T>(value) & 0x7fffU) > format.infinity());
      continue;
    }
    if (magnitude == format.infinity()) {
      CHECK(std::isinf(value));
    } else {
      CHECK_EQ(std::fabs(static_cast<double>(value)), reference_value(format, magnitude));
    }
    CHECK_EQ(narrowed<T>(value), bits);
  }
}

template <typename T>
void check_rounding(const Format& format, float value) {
  const uint32_t sign = std::signbit(value) ? 0x8000U : 0U;
  const uint32_t got = narrowed<T>(value);
  if (std::isnan(value)) {
    CHECK((got & 0x7fffU) > format.infinity());
  } else if (std::isinf(value)) {
    CHECK_EQ(got, sign | format.infinity());
  } else {
    CHECK_EQ(got, sign | reference_bits(format, std::fabs(static_cast<double>(value))));
  }
}

// Values, ties between them, and what lies next to each.
template <typename T>
void check_ties(const Format& format) {
  constexpr float kUp = std::numeric_limits<float>::infinity();
  for (uint32_t bits = 0; bits < format.infinity(); ++bits) {
    const double low = reference_value(format, bits);
    const double high = reference_value(format, bits + 1);
    for (const double value : {low, (low + high) / 2}) {
      const auto exact = static_cast<float>(value);
      for (const float near : {exact, std::nextafter(exact, 0.0F), std::nextafter(exact, kUp)}) {
        check_rounding<T>(format, near);
        check_rounding<T>(format, -near);
      }
    }
  }
}

template <typename T>
void check_random(const Format& format) {
  std::mt19937 random(11);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto bits = static_cast<uint32_t>(random());
    check_rounding<T>(format, std::bit_cast<float>(bits));
    // Most of all floats are out of a half's range: these are not.
    check_rounding<T>(format, std::bit_cast<float>((bits & 0x8fffffffU) | 0x30000000U));
  }
}

}  // namespace

TEST(every_float16_survives_a_float) { check_all_values<Half>(kHalf); }

TEST(every_bfloat16_survives_a_float) { check_all_values<Bfloat16>(kBfloat16); }

TEST(ties_go_to_even) {
  check_ties<Half>(kHalf);
  check_ties<Bfloat16>(kBfloat16);
}

TEST(random_floats_round_to_the_nearest) {
  check_random<Half>(kHalf);
  check_random<Bfloat16>(kBfloat16);
}

TEST(what_is_too_large_becomes_infinite) {
  CHECK_EQ(to_half(65519.996F).bits, 0x7bff);
  CHECK_EQ(to_half(65520.0F).bits, 0x7c00);
  CHECK_EQ(to_half(-1e9F).bits, 0xfc00);
  CHECK_EQ(to_bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
}
