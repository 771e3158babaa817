// CRC-32 as in zlib and IEEE 802.3.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvdtune {

// crc32(b, crc32(a)) is the checksum of a followed by b.
uint32_t crc32(std::string_view data, uint32_t before = 0);

}  // namespace hvdtune
