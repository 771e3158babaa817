// Bytes in and out of messages. Little endian; strings and lists carry a u32 count.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hmac.h"
#include "base/status.h"

namespace hvdtune {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

class Writer {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void put(T value) {
    const auto* raw = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }
  void put(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    put(static_cast<uint32_t>(values.size()));
    for (const T& value : values) put(value);
  }

  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// Reads what Writer wrote. Never trusts a length: a count that the remaining bytes cannot hold is
// an Error(kInternal) that names the byte.
class Reader {
 public:
  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  T get() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string get_string() {
    const size_t size = get_count(1);
    std::string text(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
    return text;
  }
  // A list's length, refused unless that many items of at least item_bytes can follow.
  size_t get_count(size_t item_bytes) {
    const size_t count = get<uint32_t>();
    if (count > (bytes_.size() - at_) / item_bytes) {
      malformed("a list of " + std::to_string(count) + " items does not fit");
    }
    return count;
  }
  template <typename T>
  std::vector<T> get_list() {
    std::vector<T> values(get_count(sizeof(T)));
    for (T& value : values) value = get<T>();
    return values;
  }
  // An enumerator below `count`.
  template <typename E>
  E get_enum(int count) {
    const E value = get<E>();
    if (static_cast<int>(value) >= count) malformed("an enumerator is out of range");
    return value;
  }
  void finish() const {
    if (at_ != bytes_.size()) malformed("bytes are left over");
  }
  [[noreturn]] void malformed(const std::string& why) const {
    throw Error(ErrorCode::kInternal,
                "malformed message at byte " + std::to_string(at_) + ": " + why);
  }

 private:
  void need(size_t size) const {
    if (bytes_.size() - at_ < size) malformed("it is cut short");
  }

  Bytes bytes_;
  size_t at_ = 0;
};

}  // namespace hvdtune
