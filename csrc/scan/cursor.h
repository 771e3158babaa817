// A strict reader of JSON values in memory. Every function returns false, or nothing, where the
// text is not what it reads or ends too early; the cursor then stands anywhere.
//
// A NUL follows the text, so that few steps need to ask whether it ends: JSON has none. What every
// event calls some dozen times is here, to be compiled into its callers, which can then keep the
// cursor in registers as long as nothing takes its address.

#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hvdtune::scan {

inline constexpr int kMaxDepth = 64;

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') < 10; }

// Mostly what is asked about is none, and larger than all.
inline bool is_space(char c) {
  return static_cast<unsigned char>(c) <= ' ' && (c == ' ' || c == '\n' || c == '\r' || c == '\t');
}

class Cursor {
 public:
  // *end is NUL.
  Cursor(const char* at, const char* end) : at_(at), end_(end) {}

  const char* at() const { return at_; }
  bool done() const { return at_ == end_; }
  char peek() const { return *at_; }

  void skip_space();
  bool take(char wanted);
  // The inside of a string, as it is written; escapes are checked, control characters refused.
  std::optional<std::string_view> string(bool& has_escapes);
  bool skip_value(int depth);
  bool skip_number();
  // An integer of at most 18 digits that is written as JSON wants it.
  std::optional<std::int64_t> integer();
  // Nanoseconds of microseconds written as a decimal number; no exponent, at most 15 digits before
  // the point, halves rounded away from zero.
  std::optional<std::int64_t> nanoseconds();

 private:
  const char* at_;
  const char* end_;

  bool goes_on_to(const char* at);
  bool skip_word();
  static const char* behind_escape(const char* at, const char* end);
  static const char* behind_container(Cursor cursor, int depth);
  void skip_digits();
  std::uint64_t digits();
};

// The text that escapes stand for; nothing for half of a surrogate pair, and whole pairs too.
std::optional<std::string> unescape(std::string_view written);

// Bytes at which a string needs a look: quote, backslash, control characters.
inline constexpr auto kSpecial = [] {
  std::array<bool, 256> special{};
  for (int byte = 0; byte < 0x20; ++byte) special[byte] = true;
  special['"'] = special['\\'] = true;
  return special;
}();

inline const char* next_special(const char* at, const char* end) {
#ifdef __SSE2__
  const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
  const __m128i control = _mm_set1_epi8(0x1F);
  for (; end - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
    const __m128i is_control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes);
    const __m128i special = _mm_or_si128(
        is_control, _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)));
    const auto found = static_cast<unsigned>(_mm_movemask_epi8(special));
    if (found != 0) return at + std::countr_zero(found);
  }
#endif
  while (at != end && !kSpecial[static_cast<unsigned char>(*at)]) ++at;
  return at;
}

[[gnu::always_inline]] inline void Cursor::skip_space() {
  while (is_space(*at_)) ++at_;
}

[[gnu::always_inline]] inline bool Cursor::take(char wanted) {
  if (*at_ != wanted) return false;
  ++at_;
  return true;
}

[[gnu::always_inline]] inline std::optional<std::string_view> Cursor::string(bool& has_escapes) {
  if (!take('"')) return std::nullopt;
  const char* begin = at_;
  has_escapes = false;
  while (true) {
    at_ = next_special(at_, end_);
    if (*at_ == '"') {
      return std::string_view(begin, static_cast<std::size_t>(at_++ - begin));
    }
    has_escapes = true;
    if (!goes_on_to(behind_escape(at_, end_))) return std::nullopt;
  }
}

[[gnu::always_inline]] inline bool Cursor::skip_value(int depth) {
  if (depth > kMaxDepth) return false;
  const char next = peek();
  if (next == '"') {
    bool has_escapes = false;
    return string(has_escapes).has_value();
  }
  if (is_digit(next) || next == '-') return skip_number();
  return goes_on_to(behind_container(*this, depth));
}

[[gnu::always_inline]] inline bool Cursor::goes_on_to(const char* at) {
  at_ = at;
  return at != nullptr;
}

[[gnu::always_inline]] inline void Cursor::skip_digits() {
  while (is_digit(*at_)) ++at_;
}

[[gnu::always_inline]] inline bool Cursor::skip_number() {
  take('-');
  if (!is_digit(peek())) return false;
  if (!take('0')) skip_digits();
  if (take('.')) {
    if (!is_digit(peek())) return false;
    skip_digits();
  }
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    if (!is_digit(peek())) return false;
    skip_digits();
  }
  // At the end of the data the number may go on.
  return at_ != end_;
}

// Their value, modulo 2 to the power of 64.
[[gnu::always_inline]] inline std::uint64_t Cursor::digits() {
  std::uint64_t value = 0;
  for (; is_digit(*at_); ++at_) {
    value = 10 * value + static_cast<unsigned char>(*at_ - '0');
  }
  return value;
}

[[gnu::always_inline]] inline std::optional<std::int64_t> Cursor::integer() {
  const bool negative = take('-');
  const char* begin = at_;
  const auto value = static_cast<std::int64_t>(digits());
  const auto count = at_ - begin;
  if (count == 0 || count > 18) return std::nullopt;
  if (*begin == '0' && (count > 1 || negative)) return std::nullopt;
  const char next = peek();
  if (at_ == end_ || next == '.' || next == 'e' || next == 'E') return std::nullopt;
  return negative ? -value : value;
}

[[gnu::always_inline]] inline std::optional<std::int64_t> Cursor::nanoseconds() {
  const bool quoted = take('"');
  const bool negative = take('-');
  const char* begin = at_;
  std::uint64_t value = digits();
  const auto count = at_ - begin;
  if (count == 0 || count > 15 || (*begin == '0' && count > 1)) return std::nullopt;
  int scaled = 0;
  bool up = false;
  if (take('.')) {
    for (; scaled < 3 && is_digit(peek()); ++scaled) {
      value = 10 * value + static_cast<unsigned char>(*at_++ - '0');
    }
    if (scaled == 0) return std::nullopt;
    up = scaled == 3 && is_digit(peek()) && *at_ >= '5';
    skip_digits();
  }
  for (; scaled < 3; ++scaled) value *= 10;
  value += up;
  const char next = peek();
  if (at_ == end_ || next == 'e' || next == 'E') return std::nullopt;
  if (quoted && !take('"')) return std::nullopt;
  const auto ns = static_cast<std::int64_t>(value);
  return negative ? -ns : ns;
}

}  // namespace hvdtune::scan
