// The texts of a file and their numbers: each text has one, "" has 0.

#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hvdtune::scan {

class Texts {
 public:
  Texts() { add(""); }
  Texts(const Texts&) = delete;  // the map looks into the deque
  Texts& operator=(const Texts&) = delete;

  std::int32_t code(std::string_view text);
  const std::deque<std::string>& all() const { return texts_; }

 private:
  // Tells texts apart without reading every byte; the middle of long ones is not in it.
  struct Key {
    std::uint64_t size, head, tail;
    bool operator==(const Key&) const = default;
  };
  struct Recent {
    Key key{};
    std::int32_t code = 0;
  };
  static constexpr std::size_t kRecent = 512;  // a power of two

  template <typename Word>
  static Key key_of(std::string_view text);
  static Key key_of(std::string_view text);
  static std::size_t shape_of(const Key& key);
  std::int32_t add(std::string_view text);

  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::int32_t> codes_;
  // A file has few names and threads, over and over.
  std::array<Recent, kRecent> recent_;
};

// REQUIRES: the text has room for one Word. Head and tail may overlap.
template <typename Word>
Texts::Key Texts::key_of(std::string_view text) {
  Word head, tail;
  std::memcpy(&head, text.data(), sizeof head);
  std::memcpy(&tail, text.data() + text.size() - sizeof tail, sizeof tail);
  return {text.size(), head, tail};
}

inline Texts::Key Texts::key_of(std::string_view text) {
  if (text.size() >= 8) return key_of<std::uint64_t>(text);
  if (text.size() >= 4) return key_of<std::uint32_t>(text);
  if (text.size() >= 2) return key_of<std::uint16_t>(text);
  return key_of<std::uint8_t>(text);
}

inline std::size_t Texts::shape_of(const Key& key) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2 to the 64 by the golden ratio
  const std::uint64_t mixed = (key.head * kOdd) ^ (std::rotl(key.tail, 32) + key.size);
  return static_cast<std::size_t>((mixed * kOdd) >> (64 - std::countr_zero(kRecent)));
}

inline std::int32_t Texts::code(std::string_view text) {
  if (text.empty()) return 0;
  const Key key = key_of(text);
  Recent& recent = recent_[shape_of(key)];
  const bool is_short = text.size() <= sizeof key.head + sizeof key.tail;
  if (recent.key == key && (is_short || texts_[static_cast<std::size_t>(recent.code)] == text)) {
    return recent.code;
  }
  recent = {key, add(text)};
  return recent.code;
}

}  // namespace hvdtune::scan
