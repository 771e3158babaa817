// Numbers as little-endian bytes, for the messages of start-up.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace hvdtune {

template <std::integral T>
void store_le(T value, uint8_t* to) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    to[i] = static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

template <std::integral T>
T load_le(const uint8_t* from) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= uint64_t{from[i]} << (8 * i);
  return static_cast<T>(value);
}

}  // namespace hvdtune
