#include "collective/reduce/identity_element.h"

#include "check.h"
#include "collective/naive.h"

using namespace hvdtune;
using namespace hvdtune::testing;

TEST(a_neutral_contribution_changes_no_result) {
  constexpr ReduceOp kFolds[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                                 ReduceOp::kProduct};
  for (int d = 0; d < kReducedDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    const size_t element = size_of(dtype);
    for (const ReduceOp op : kFolds) {
      for (unsigned seed = 1; seed <= 3; ++seed) {
        Buffer values = dtype == DType::kFloat16    ? random_values<Half>(33, seed)
                        : dtype == DType::kBfloat16 ? random_values<Bfloat16>(33, seed)
                        : dtype == DType::kFloat32  ? random_values<float>(33, seed)
                        : dtype == DType::kFloat64  ? random_values<double>(33, seed)
                                                    : random_values<uint8_t>(33 * element, seed);
        if (dtype == DType::kBool) {
          for (uint8_t& value : values) value &= 1;
        }
        Buffer identity(values.size());
        fill_identity(dtype, op, identity.data(), 33);
        const uint8_t* const inputs[] = {identity.data(), values.data()};
        const int hosts[] = {2};
        Buffer result(values.size());
        reduce_all({dtype, op, 1.0, 1.0, 2}, inputs, hosts, result.data(), 33);
        CHECK(result == values);
      }
    }
  }
}

TEST(sums_get_zero) {
  for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kAdasum}) {
    Buffer identity(24, 7);
    fill_identity(DType::kFloat64, op, identity.data(), 3);
    CHECK(identity == Buffer(24, 0));
  }
}
