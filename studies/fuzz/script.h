// Turns a fuzzer's input into what a target does: numbers and pieces of bytes, front to back. An
// input that has ended gives zeros and nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/hmac.h"

namespace hvdtune::fuzz {

class Script {
 public:
  Script(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool ended() const { return rest_.empty(); }
  uint8_t byte() {
    const Bytes one = take(1);
    return one.empty() ? 0 : one[0];
  }
  uint16_t number() {
    const uint8_t low = byte();
    return static_cast<uint16_t>(low | byte() << 8);
  }
  // A count, then as many bytes or what is left.
  Bytes piece() { return take(number()); }
  Bytes take(size_t bytes) {
    const Bytes result = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(result.size());
    return result;
  }

 private:
  Bytes rest_;
};

// The other way round, for seeds.
class ScriptWriter {
 public:
  ScriptWriter& byte(uint8_t value) {
    bytes_.push_back(value);
    return *this;
  }
  ScriptWriter& number(size_t value) {
    return byte(static_cast<uint8_t>(value)).byte(static_cast<uint8_t>(value >> 8));
  }
  ScriptWriter& piece(Bytes bytes) {
    number(bytes.size());
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

}  // namespace hvdtune::fuzz
