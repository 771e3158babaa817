#include "timeline/crc32.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace hvdtune {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// Row k advances a byte by k further bytes, which makes eight bytes per step possible
// (Kounavis and Berry, "slicing-by-8").
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xEDB88320u : 0);
    tables[0][byte] = crc;
  }
  for (size_t row = 1; row < 8; ++row) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t previous = tables[row - 1][byte];
      tables[row][byte] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(std::string_view data, uint32_t before) {
  uint32_t crc = ~before;
  const char* at = data.data();
  size_t left = data.size();
  for (; left >= 8; at += 8, left -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, 8);
    word ^= crc;
    crc = 0;
    for (size_t byte = 0; byte < 8; ++byte) {
      crc ^= kTables[7 - byte][(word >> (8 * byte)) & 0xFF];
    }
  }
  for (; left > 0; ++at, --left) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint8_t>(*at)) & 0xFF];
  }
  return ~crc;
}

}  // namespace hvdtune
