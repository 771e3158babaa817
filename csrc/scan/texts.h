// The texts of a file and their numbers: each text has one, "" has 0.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
  // What tells texts apart but for the middle of long ones, without a look at each byte.
  struct Key {
    std::uint64_t size, head, tail;
    bool operator==(const Key&) const = default;
  };
  struct Recent {
    Key key{};
    std::int32_t code = 0;
  };
  static constexpr std::size_t kRecent = 512;  // a power of two

  static Key key_of(std::string_view text);
  static std::size_t place_of(const Key& key);
  std::int32_t add(std::string_view text);

  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, std::int32_t> codes_;
  // A file has few names and threads, over and over. An empty place is that of "".
  std::array<Recent, kRecent> recent_;
};

}  // namespace hvdtune::scan
