#include "base/dtype.h"

#include <array>
#include <string>

#include "base/status.h"

namespace hvdtune {
namespace {

struct Row {
  std::string_view name;
  size_t bytes;
};

constexpr std::array<Row, kDTypeCount> kRows = {{{"bool", 1},
                                                 {"uint8", 1},
                                                 {"int8", 1},
                                                 {"int16", 2},
                                                 {"int32", 4},
                                                 {"int64", 8},
                                                 {"float16", 2},
                                                 {"bfloat16", 2},
                                                 {"float32", 4},
                                                 {"float64", 8},
                                                 {"uint16", 2},
                                                 {"float8_e4m3fn", 1},
                                                 {"float8_e5m2", 1},
                                                 {"float8_e4m3fnuz", 1},
                                                 {"float8_e5m2fnuz", 1}}};

}  // namespace

size_t size_of(DType dtype) { return kRows[static_cast<size_t>(dtype)].bytes; }

std::string_view name_of(DType dtype) { return kRows[static_cast<size_t>(dtype)].name; }

DType dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  throw Error(ErrorCode::kUsage, "dtype " + std::string(name) +
                                     " is not supported; use bool, uint8, uint16, int8..int64, "
                                     "float8_*, float16, bfloat16, float32 or float64");
}

}  // namespace hvdtune
