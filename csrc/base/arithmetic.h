// What a reduction does with one element: which type it is added up in, and how it is widened,
// scaled, combined and rounded. The loops for processors and those for GPUs are compiled from this
// text, so that they compute the same.
//
// It is included inside a namespace of the includer's own, so that no function built for a newer
// processor can serve an older one; <cstdint>, <limits> and "base/half.h" come before.

template <typename T>
struct Element {
  using Acc = T;
};
template <>
struct Element<uint8_t> {
  using Acc = int32_t;
};
template <>
struct Element<int8_t> {
  using Acc = int32_t;
};
template <>
struct Element<int16_t> {
  using Acc = int32_t;
};
template <>
struct Element<uint16_t> {
  using Acc = int32_t;
};
template <>
struct Element<Half> {
  using Acc = float;
};
template <>
struct Element<Bfloat16> {
  using Acc = float;
};

template <typename Acc>
inline constexpr bool kFloating = false;
template <>
inline constexpr bool kFloating<float> = true;
template <>
inline constexpr bool kFloating<double> = true;

template <typename T>
inline auto widen(T value) {
  return static_cast<typename Element<T>::Acc>(value);
}
inline float widen(Half value) { return to_float(value); }
inline float widen(Bfloat16 value) { return to_float(value); }

template <typename T, typename Acc>
inline void narrow(Acc value, T& out) {
  out = static_cast<T>(value);
}
inline void narrow(float value, Half& out) { out = to_half(value); }
inline void narrow(float value, Bfloat16& out) { out = to_bfloat16(value); }

// Without its fraction; the largest or smallest integer beyond those, and 0 for NaN, for
// which C++ leaves the result open and processors differ.
template <typename Acc>
inline Acc truncated(double value) {
  // Powers of two, unlike the largest integer itself.
  constexpr double kEnd = 2.0 * static_cast<double>(Acc{1} << (sizeof(Acc) * 8 - 2));
  constexpr Acc kLargest = std::numeric_limits<Acc>::max();
  constexpr Acc kSmallest = std::numeric_limits<Acc>::min();
  if (!(value < kEnd)) return value >= kEnd ? kLargest : Acc{0};
  return value > -kEnd ? static_cast<Acc>(value) : kSmallest;
}

// Scaling integers goes through double and truncates, as Horovod's does.
template <typename Acc>
inline Acc scaled(Acc value, double factor) {
  if constexpr (kFloating<Acc>) {
    return value * static_cast<Acc>(factor);
  } else {
    return truncated<Acc>(static_cast<double>(value) * factor);
  }
}

// Integers wrap around: the arithmetic is done unsigned.
struct Sum {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (kFloating<A>) {
      return a + b;
    } else {
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
  }
};
struct Product {
  template <typename A>
  static A apply(A a, A b) {
    if constexpr (kFloating<A>) {
      return a * b;
    } else {
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
  }
};
struct Min {
  template <typename A>
  static A apply(A a, A b) {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <typename A>
  static A apply(A a, A b) {
    return a < b || b != b ? b : a;  // a NaN on any rank stays one
  }
};
