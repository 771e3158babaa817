// Compiled once per instruction set with HVDTUNE_ISA naming the namespace. Everything else here is
// local to the file, so that no function built for a newer processor can serve an older one.
#include "collective/reduce/kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/half.h"

namespace hvdtune::HVDTUNE_ISA {
namespace {

#include "base/arithmetic.h"

// Halves are turned into floats and back by blocks, by the processor's instructions where it has
// them: they take a quarter of the time that the same in integers does, and give the same bits.
// Floats of a block stay in the first cache.
constexpr size_t kBlock = 512;

void widen_all(const Half* from, float* to, size_t count) {
  size_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= count; i += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    _mm512_storeu_ps(to + i, _mm512_maskz_cvtph_ps(0xffff, halves));
  }
#elif defined(__F16C__)
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
#endif
  for (; i < count; ++i) to[i] = widen(from[i]);
}

// The instructions keep some bits of what is no number; to_half has one such number of each sign.
void narrow_all(const float* from, Half* to, size_t count) {
  size_t i = 0;
#if defined(__AVX512F__)
  const __m256i sign = _mm256_set1_epi16(static_cast<int16_t>(0x8000));
  const __m256i nan = _mm256_set1_epi16(0x7e00);
  for (; i + 16 <= count; i += 16) {
    const __m512 values = _mm512_loadu_ps(from + i);
    const __m256i halves = _mm512_maskz_cvtps_ph(0xffff, values, _MM_FROUND_TO_NEAREST_INT);
    const __mmask16 none = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m256i instead = _mm256_or_si256(_mm256_and_si256(halves, sign), nan);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_mask_mov_epi16(halves, none, instead));
  }
#elif defined(__F16C__)
  const __m128i sign = _mm_set1_epi16(static_cast<int16_t>(0x8000));
  const __m128i nan = _mm_set1_epi16(0x7e00);
  for (; i + 8 <= count; i += 8) {
    const __m256 values = _mm256_loadu_ps(from + i);
    const __m128i halves = _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT);
    const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m128i none =
        _mm_packs_epi32(_mm256_castsi256_si128(unordered), _mm256_extracti128_si256(unordered, 1));
    const __m128i instead = _mm_or_si128(_mm_and_si128(halves, sign), nan);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_blendv_epi8(halves, instead, none));
  }
#endif
  for (; i < count; ++i) narrow(from[i], to[i]);
}

template <typename T>
void load(const void* in, void* acc, size_t count, double prescale) {
  using Acc = typename Element<T>::Acc;
  const T* __restrict from = static_cast<const T*>(in);
  Acc* __restrict to = static_cast<Acc*>(acc);
  if constexpr (std::is_same_v<T, Half>) {
    widen_all(from, to, count);
    if (prescale == 1.0) return;
    for (size_t i = 0; i < count; ++i) to[i] = scaled(to[i], prescale);
  } else if (prescale == 1.0) {
    for (size_t i = 0; i < count; ++i) to[i] = widen(from[i]);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = scaled(widen(from[i]), prescale);
  }
}

template <typename T, typename Op>
void fold(const void* in, void* acc, size_t count, double prescale) {
  using Acc = typename Element<T>::Acc;
  const T* __restrict from = static_cast<const T*>(in);
  Acc* __restrict to = static_cast<Acc*>(acc);
  if constexpr (std::is_same_v<T, Half>) {
    float block[kBlock];
    for (size_t at = 0; at < count; at += kBlock) {
      const size_t length = std::min(kBlock, count - at);
      load<Half>(from + at, block, length, prescale);
      for (size_t i = 0; i < length; ++i) to[at + i] = Op::apply(to[at + i], block[i]);
    }
  } else if (prescale == 1.0) {
    for (size_t i = 0; i < count; ++i) to[i] = Op::apply(to[i], widen(from[i]));
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = Op::apply(to[i], scaled(widen(from[i]), prescale));
  }
}

template <typename T, typename Op>
void combine(const void* other, void* acc, size_t count) {
  using Acc = typename Element<T>::Acc;
  const Acc* __restrict from = static_cast<const Acc*>(other);
  Acc* __restrict to = static_cast<Acc*>(acc);
  for (size_t i = 0; i < count; ++i) to[i] = Op::apply(to[i], from[i]);
}

template <typename T>
void store(const void* acc, void* out, size_t count, int divisor, double postscale) {
  using Acc = typename Element<T>::Acc;
  // in place when the accumulator is the element type
  const Acc* from = static_cast<const Acc*>(acc);
  T* to = static_cast<T*>(out);
  const Acc divide_by = static_cast<Acc>(divisor);
  if constexpr (std::is_same_v<T, Half>) {
    if (divisor == 1 && postscale == 1.0) return narrow_all(from, to, count);
    float block[kBlock];
    for (size_t at = 0; at < count; at += kBlock) {
      const size_t length = std::min(kBlock, count - at);
      for (size_t i = 0; i < length; ++i) block[i] = from[at + i] / divide_by;
      if (postscale != 1.0) {
        for (size_t i = 0; i < length; ++i) block[i] = scaled(block[i], postscale);
      }
      narrow_all(block, to + at, length);
    }
  } else if (divisor == 1 && postscale == 1.0) {
    for (size_t i = 0; i < count; ++i) narrow(from[i], to[i]);
  } else if (postscale == 1.0) {
    for (size_t i = 0; i < count; ++i) narrow(from[i] / divide_by, to[i]);
  } else {
    for (size_t i = 0; i < count; ++i) narrow(scaled(from[i] / divide_by, postscale), to[i]);
  }
}

// Each element depends on those at its own place only, also where `out` is an input.
#if defined(__clang__)
#define HVDTUNE_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define HVDTUNE_INDEPENDENT _Pragma("GCC ivdep")
#endif

template <typename T, typename Op, bool kDivides, bool kTwice>
void pair_loop(const T* first, const T* second, T* to, T* also, size_t count, int divisor) {
  const auto divide_by = static_cast<typename Element<T>::Acc>(divisor);
  HVDTUNE_INDEPENDENT
  for (size_t i = 0; i < count; ++i) {
    auto value = Op::apply(widen(first[i]), widen(second[i]));
    if constexpr (kDivides) value = value / divide_by;
    T rounded;
    narrow(value, rounded);
    to[i] = rounded;
    if constexpr (kTwice) also[i] = rounded;
  }
}

template <typename Op, bool kDivides, bool kTwice>
void pair_of_halves(const Half* first, const Half* second, Half* to, Half* also, size_t count,
                    int divisor) {
  const auto divide_by = static_cast<float>(divisor);
  float block[kBlock];
  float other[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t length = std::min(kBlock, count - at);
    widen_all(first + at, block, length);
    widen_all(second + at, other, length);
    for (size_t i = 0; i < length; ++i) {
      block[i] = Op::apply(block[i], other[i]);
      if constexpr (kDivides) block[i] = block[i] / divide_by;
    }
    narrow_all(block, to + at, length);
    if constexpr (kTwice) std::memcpy(also + at, to + at, length * sizeof(Half));
  }
}

template <typename T, typename Op, bool kDivides, bool kTwice>
constexpr auto loop_of_pair() {
  if constexpr (std::is_same_v<T, Half>) {
    return &pair_of_halves<Op, kDivides, kTwice>;
  } else {
    return &pair_loop<T, Op, kDivides, kTwice>;
  }
}

template <typename T, typename Op>
void pair(const void* a, const void* b, void* out, void* also, size_t count, int divisor) {
  const auto loop = divisor == 1      ? also == nullptr ? loop_of_pair<T, Op, false, false>()
                                                        : loop_of_pair<T, Op, false, true>()
                    : also == nullptr ? loop_of_pair<T, Op, true, false>()
                                      : loop_of_pair<T, Op, true, true>();
  loop(static_cast<const T*>(a), static_cast<const T*>(b), static_cast<T*>(out),
       static_cast<T*>(also), count, divisor);
}

template <typename T, typename Op>
constexpr Kernels make() {
  return {sizeof(typename Element<T>::Acc),
          &load<T>,
          &fold<T, Op>,
          &combine<T, Op>,
          &store<T>,
          &pair<T, Op>};
}

template <typename T>
constexpr void fill(Kernels (&row)[kReduceOpCount]) {
  row[0] = row[1] = make<T, Sum>();
  row[2] = make<T, Min>();
  row[3] = make<T, Max>();
  row[4] = make<T, Product>();
  row[5] = row[0];  // Adasum uses load and store only
}

struct Table {
  Kernels rows[kReducedDTypeCount][kReduceOpCount];

  constexpr Table() : rows{} {
    // For 0 and 1: sum and average are "or", which is max; product is "and", which is min.
    rows[0][0] = rows[0][1] = rows[0][3] = rows[0][5] = make<uint8_t, Max>();
    rows[0][2] = rows[0][4] = make<uint8_t, Min>();
    fill<uint8_t>(rows[1]);
    fill<int8_t>(rows[2]);
    fill<int16_t>(rows[3]);
    fill<int32_t>(rows[4]);
    fill<int64_t>(rows[5]);
    fill<Half>(rows[6]);
    fill<Bfloat16>(rows[7]);
    fill<float>(rows[8]);
    fill<double>(rows[9]);
    fill<uint16_t>(rows[10]);
  }
};

constexpr Table kTable;

}  // namespace

const Kernels& kernels(DType dtype, ReduceOp op) {
  return kTable.rows[static_cast<int>(dtype)][static_cast<int>(op)];
}

}  // namespace hvdtune::HVDTUNE_ISA
