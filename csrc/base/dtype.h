// Element types a collective can carry. The values travel on the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hvdtune {

enum class DType : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBfloat16,
  kFloat32,
  kFloat64,
  kUint16,
  // Only moved, as bytes.
  kFloat8E4m3fn,
  kFloat8E5m2,
  kFloat8E4m3fnuz,
  kFloat8E5m2fnuz,
};
inline constexpr int kDTypeCount = 15;
// The first ones are those that can be reduced.
inline constexpr int kReducedDTypeCount = 11;

constexpr bool is_reducible(DType dtype) { return static_cast<int>(dtype) < kReducedDTypeCount; }

size_t size_of(DType dtype);
std::string_view name_of(DType dtype);
// Throws Error(kUsage) for a name that is none of name_of's.
DType dtype_from_name(std::string_view name);

}  // namespace hvdtune
