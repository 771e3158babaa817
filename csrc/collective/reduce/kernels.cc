// Compiled once per instruction set with HVDTUNE_ISA naming the namespace. Everything else here is
// local to the file, so that no function built for a newer processor can serve an older one.
#include "collective/reduce/kernels.h"

#include <limits>

#include "base/half.h"

namespace hvdtune::HVDTUNE_ISA {
namespace {

#include "base/arithmetic.h"

template <typename T>
void load(const void* in, void* acc, size_t count, double prescale) {
  using Acc = typename Element<T>::Acc;
  const T* __restrict from = static_cast<const T*>(in);
  Acc* __restrict to = static_cast<Acc*>(acc);
  if (prescale == 1.0) {
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
  if (prescale == 1.0) {
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
  if (divisor == 1 && postscale == 1.0) {
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

template <typename T, typename Op>
void pair(const void* a, const void* b, void* out, void* also, size_t count, int divisor) {
  const auto loop = divisor == 1      ? also == nullptr ? &pair_loop<T, Op, false, false>
                                                        : &pair_loop<T, Op, false, true>
                    : also == nullptr ? &pair_loop<T, Op, true, false>
                                      : &pair_loop<T, Op, true, true>;
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
  Kernels rows[kDTypeCount][kReduceOpCount];

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
