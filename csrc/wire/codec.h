// Bytes in and out of messages. Little endian; strings and lists carry a u32 count.
//
// A function next to each message names its fields once, for both directions:
//   void fields(auto& archive, OneOf<Pulse> auto& pulse) { archive(pulse.sent_ns, ...); }
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/hmac.h"
#include "base/status.h"

namespace hvdtune {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

// A message that is written, and so const, or one that is read.
template <typename T, typename Message>
concept OneOf = std::same_as<std::remove_const_t<T>, Message>;

template <typename T>
concept Number = std::is_arithmetic_v<T> && !std::same_as<T, bool>;

class Writer {
 public:
  static constexpr bool kReads = false;

  template <typename... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
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
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
    requires requires(Writer& out, const T& message) { fields(out, message); }
  void put(const T& message) {
    fields(*this, message);
  }

  size_t size() const { return bytes_.size(); }
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

// Reads what Writer wrote. Never trusts a length: a count that the remaining bytes cannot hold is
// an Error(kInternal) that names the byte. An enumeration E has its number of values in
// count_of(E).
class Reader {
 public:
  static constexpr bool kReads = true;

  explicit Reader(Bytes bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  template <Number T>
  T get() {
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  template <typename E>
    requires std::is_enum_v<E>
  E get() {
    const auto value = get<std::underlying_type_t<E>>();
    if (value >= count_of(E{})) malformed("an enumerator is out of range");
    return static_cast<E>(value);
  }
  // A list's length, refused unless that many items of at least item_bytes can follow.
  size_t get_count(size_t item_bytes) {
    const size_t count = get<uint32_t>();
    if (count > (bytes_.size() - at_) / item_bytes) {
      malformed("a list of " + std::to_string(count) + " items is longer than the message");
    }
    return count;
  }
  void finish() const {
    if (at_ != bytes_.size()) malformed("bytes are left over");
  }
  [[noreturn]] void malformed(const std::string& why) const {
    throw Error(ErrorCode::kInternal,
                "malformed message at byte " + std::to_string(at_) + ": " + why);
  }

 private:
  template <typename T>
    requires Number<T> || std::is_enum_v<T>
  void get(T& value) {
    value = get<T>();
  }
  void get(bool& value) { value = get<uint8_t>() != 0; }
  void get(std::string& text) {
    const size_t size = get_count(1);
    text.assign(reinterpret_cast<const char*>(bytes_.data() + at_), size);
    at_ += size;
  }
  template <typename T>
  void get(std::vector<T>& values) {
    values.resize(get_count(smallest<T>()));
    for (T& value : values) get(value);
  }
  template <typename T>
  void get(std::optional<T>& value) {
    if (get<uint8_t>() != 0) get(value.emplace());
  }
  template <typename T>
    requires requires(Reader& in, T& message) { fields(in, message); }
  void get(T& message) {
    fields(*this, message);
  }
  // The bytes of an empty one.
  template <typename T>
  static size_t smallest() {
    static const size_t bytes = [] {
      Writer out;
      out.put(T{});
      return out.size();
    }();
    return bytes;
  }
  void need(size_t size) const {
    if (bytes_.size() - at_ < size) malformed("the message ends too early");
  }

  Bytes bytes_;
  size_t at_ = 0;
};

template <typename T>
std::vector<uint8_t> encoded(const T& message) {
  Writer out;
  out.put(message);
  return out.take();
}

// Throws Error(kInternal) for bytes that are no such message.
template <typename T>
T decoded(Bytes bytes) {
  Reader in(bytes);
  T message;
  in(message);
  in.finish();
  return message;
}

}  // namespace hvdtune
