#include "scan/texts.h"

#include <bit>
#include <cstring>

namespace hvdtune::scan {
namespace {

template <typename Word>
std::uint64_t word_at(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

}  // namespace

Texts::Key Texts::key_of(std::string_view text) {
  const std::size_t size = text.size();
  const char *begin = text.data(), *end = begin + size;
  if (size >= 8) return {size, word_at<std::uint64_t>(begin), word_at<std::uint64_t>(end - 8)};
  if (size >= 4) return {size, word_at<std::uint32_t>(begin), word_at<std::uint32_t>(end - 4)};
  if (size >= 2) return {size, word_at<std::uint16_t>(begin), word_at<std::uint16_t>(end - 2)};
  if (size == 1) return {size, word_at<std::uint8_t>(begin), 0};
  return {0, 0, 0};
}

std::size_t Texts::place_of(const Key& key) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;  // 2 to the 64 by the golden ratio
  const std::uint64_t mixed = (key.head * kOdd) ^ (std::rotl(key.tail, 32) + key.size);
  return static_cast<std::size_t>((mixed * kOdd) >> (64 - std::countr_zero(kRecent)));
}

std::int32_t Texts::code(std::string_view text) {
  const Key key = key_of(text);
  Recent& recent = recent_[place_of(key)];
  const bool is_whole = text.size() <= 2 * sizeof key.head;
  if (recent.key == key && (is_whole || texts_[static_cast<std::size_t>(recent.code)] == text)) {
    return recent.code;
  }
  recent = {key, add(text)};
  return recent.code;
}

std::int32_t Texts::add(std::string_view text) {
  const auto known = codes_.find(text);
  if (known != codes_.end()) return known->second;
  const auto number = static_cast<std::int32_t>(texts_.size());
  codes_.emplace(texts_.emplace_back(text), number);
  return number;
}

}  // namespace hvdtune::scan
