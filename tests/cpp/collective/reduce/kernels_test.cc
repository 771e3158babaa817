// Every instruction set gives the bits of the plain one.
#include "collective/reduce/kernels.h"

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.h"

using namespace hvdtune;

namespace {

using Table = const Kernels& (*)(DType, ReduceOp);

std::vector<Table> other_tables() {
  std::vector<Table> tables;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) tables.push_back(&avx2::kernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    tables.push_back(&avx512::kernels);
  }
#endif
  return tables;
}

constexpr size_t kMost = 1100;

// Any bits: infinities, NaNs and subnormals are among them.
class Inputs {
 public:
  explicit Inputs(DType dtype) {
    std::mt19937 random(static_cast<unsigned>(dtype));
    for (std::vector<uint8_t>* bytes : {&first_, &second_}) {
      bytes->resize(kMost * 8);
      for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random());
      if (dtype == DType::kBool) {
        for (uint8_t& byte : *bytes) byte &= 1;
      }
    }
    // Which of two NaNs an addition returns is the processor's choice.
    if (dtype == DType::kFloat64) clear_nans<uint64_t>(0x7ff0000000000000);
    if (dtype == DType::kFloat32) clear_nans<uint32_t>(0x7f800000);
    if (dtype == DType::kFloat16) clear_nans<uint16_t>(0x7c00);
    if (dtype == DType::kBfloat16) clear_nans<uint16_t>(0x7f80);
    if (dtype == DType::kFloat16) quieten_nans();
  }

  const uint8_t* first() const { return first_.data(); }
  const uint8_t* second() const { return second_.data(); }

 private:
  template <typename Bits>
  void clear_nans(Bits infinity) {
    for (size_t at = 0; at + sizeof(Bits) <= second_.size(); at += sizeof(Bits)) {
      Bits bits = 0;
      std::memcpy(&bits, second_.data() + at, sizeof bits);
      if ((bits & infinity) == infinity) bits = infinity;
      std::memcpy(second_.data() + at, &bits, sizeof bits);
    }
  }

  // Instructions that widen halves make signalling NaNs quiet, which no output shows.
  void quieten_nans() {
    for (size_t at = 0; at < first_.size(); at += sizeof(uint16_t)) {
      uint16_t bits = 0;
      std::memcpy(&bits, first_.data() + at, sizeof bits);
      if ((bits & 0x7fff) > 0x7c00) bits |= 0x200;
      std::memcpy(first_.data() + at, &bits, sizeof bits);
    }
  }

  std::vector<uint8_t> first_;
  std::vector<uint8_t> second_;
};

struct Results {
  std::vector<uint8_t> accumulator;
  std::vector<uint8_t> output;
};

struct Scales {
  double prescale;
  int divisor;
  double postscale;
};

Results run(const Kernels& kernels, const Inputs& inputs, size_t count, const Scales& scales) {
  Results results;
  results.accumulator.assign(kMost * kernels.accumulator_bytes, 0xee);
  results.output.assign(kMost * 8, 0xee);
  std::vector<uint8_t> other(kMost * kernels.accumulator_bytes);
  void* accumulator = results.accumulator.data();
  kernels.load(inputs.first(), accumulator, count, scales.prescale);
  kernels.fold(inputs.second(), accumulator, count, scales.prescale);
  kernels.load(inputs.second(), other.data(), count, scales.prescale);
  kernels.combine(other.data(), accumulator, count);
  kernels.store(accumulator, results.output.data(), count, scales.divisor, scales.postscale);
  return results;
}

void check_equal(DType dtype, ReduceOp op, const Inputs& inputs, size_t count,
                 const Scales& scales) {
  const Kernels& plain = baseline::kernels(dtype, op);
  const Results expected = run(plain, inputs, count, scales);
  for (const Table table : other_tables()) {
    CHECK_EQ(table(dtype, op).accumulator_bytes, plain.accumulator_bytes);
    const Results got = run(table(dtype, op), inputs, count, scales);
    if (got.accumulator != expected.accumulator || got.output != expected.output) {
      std::cerr << name_of(dtype) << " " << name_of(op) << " count " << count << std::endl;
    }
    CHECK(got.accumulator == expected.accumulator);
    CHECK(got.output == expected.output);
  }
}

}  // namespace

TEST(all_instruction_sets_give_the_same_bits) {
  for (int d = 0; d < kReducedDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Inputs inputs(dtype);
    for (int o = 0; o < kReduceOpCount; ++o) {
      const auto op = static_cast<ReduceOp>(o);
      for (size_t count = 0; count <= 70; ++count) {
        check_equal(dtype, op, inputs, count, {1.0, 1, 1.0});
        check_equal(dtype, op, inputs, count, {1.0, 3, 1.0});
        check_equal(dtype, op, inputs, count, {0.375, 3, 0.5});
      }
      for (const size_t count : {127UL, 1000UL, 1023UL, kMost}) {
        check_equal(dtype, op, inputs, count, {1.0, 1, 1.0});
        check_equal(dtype, op, inputs, count, {0.375, 3, 0.5});
      }
    }
  }
}

template <typename T>
void check_scaling(DType dtype, const std::vector<T>& from, double factor,
                   const std::vector<T>& expected) {
  std::vector<Table> tables = other_tables();
  tables.push_back(&baseline::kernels);
  for (const Table table : tables) {
    std::vector<T> to(from.size());
    // A load of the elements themselves: their accumulator is of their type.
    table(dtype, ReduceOp::kSum).load(from.data(), to.data(), from.size(), factor);
    CHECK(to == expected);
    table(dtype, ReduceOp::kSum).store(from.data(), to.data(), from.size(), 1, factor);
    CHECK(to == expected);
  }
}

// Through every half, and floats at and beside the places where halves are rounded.
TEST(halves_are_widened_and_rounded_alike_by_all_instruction_sets) {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> floats;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 0x1000) {
    for (const uint64_t beside : {bits, bits + 1, bits + 0xfff}) {
      floats.push_back(static_cast<uint32_t>(beside));
    }
  }
  const Kernels& plain = baseline::kernels(DType::kFloat16, ReduceOp::kSum);
  std::vector<uint16_t> widened(halves.size());
  std::vector<uint16_t> expected(floats.size());
  plain.store(floats.data(), expected.data(), floats.size(), 1, 1.0);
  for (const Table table : other_tables()) {
    const Kernels& own = table(DType::kFloat16, ReduceOp::kSum);
    std::vector<uint16_t> got(floats.size());
    own.store(floats.data(), got.data(), floats.size(), 1, 1.0);
    CHECK(got == expected);
    std::vector<float> accumulator(halves.size());
    own.load(halves.data(), accumulator.data(), halves.size(), 1.0);
    plain.store(accumulator.data(), widened.data(), halves.size(), 1, 1.0);
    for (size_t i = 0; i < halves.size(); ++i) {
      const bool is_nan = (halves[i] & 0x7fff) > 0x7c00;
      CHECK_EQ(widened[i], is_nan ? (halves[i] & 0x8000) | 0x7e00 : halves[i]);
    }
  }
}

TEST(integers_that_are_scaled_beyond_their_range_saturate) {
  constexpr auto kMost32 = std::numeric_limits<int32_t>::max();
  constexpr auto kLeast32 = std::numeric_limits<int32_t>::min();
  constexpr auto kMost64 = std::numeric_limits<int64_t>::max();
  constexpr auto kLeast64 = std::numeric_limits<int64_t>::min();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  check_scaling<int32_t>(DType::kInt32, {1 << 30, -(1 << 30), 3, -3, kLeast32}, 2.5,
                         {kMost32, kLeast32, 7, -7, kLeast32});
  check_scaling<int32_t>(DType::kInt32, {1, -1, 0}, nan, {0, 0, 0});
  check_scaling<int32_t>(DType::kInt32, {kMost32, kLeast32}, 0.5, {kMost32 / 2, kLeast32 / 2});
  check_scaling<int64_t>(DType::kInt64, {kMost64, kLeast64, 5}, 2.0, {kMost64, kLeast64, 10});
  check_scaling<int64_t>(DType::kInt64, {kMost64, kLeast64}, -1.5, {kLeast64, kMost64});
}

TEST(nothing_beyond_the_count_is_written) {
  for (int d = 0; d < kReducedDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Inputs inputs(dtype);
    const Results results = run(kernels_for(dtype, ReduceOp::kSum), inputs, 33, {1.0, 1, 1.0});
    CHECK_EQ(results.output[33 * size_of(dtype)], 0xee);
    CHECK_EQ(results.accumulator[33 * kernels_for(dtype, ReduceOp::kSum).accumulator_bytes], 0xee);
  }
}
