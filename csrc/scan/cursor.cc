#include "scan/cursor.h"

#include <array>
#include <bit>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hvdtune::scan {
namespace {

constexpr int kMaxDepth = 64;

// Bytes at which a string needs a look: quote, backslash, control characters.
constexpr auto kSpecial = [] {
  std::array<bool, 256> special{};
  for (int byte = 0; byte < 0x20; ++byte) special[byte] = true;
  special['"'] = special['\\'] = true;
  return special;
}();

const char* next_special(const char* at, const char* end) {
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

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

void append_utf8(std::string& text, unsigned code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    text += static_cast<char>(0xE0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
}

char meaning(char escaped) {
  switch (escaped) {
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return escaped;
  }
}

}  // namespace

void Cursor::skip_space() {
  while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
}

bool Cursor::take(char wanted) {
  if (at_ == end_ || *at_ != wanted) return false;
  ++at_;
  return true;
}

std::optional<std::string_view> Cursor::string(bool& has_escapes) {
  if (!take('"')) return std::nullopt;
  const char* begin = at_;
  has_escapes = false;
  while (true) {
    at_ = next_special(at_, end_);
    if (at_ == end_) return std::nullopt;
    if (*at_ == '"') {
      return std::string_view(begin, static_cast<std::size_t>(at_++ - begin));
    }
    if (*at_ != '\\' || end_ - at_ < 2) return std::nullopt;
    has_escapes = true;
    const char escaped = at_[1];
    at_ += 2;
    if (escaped == 'u') {
      if (end_ - at_ < 4) return std::nullopt;
      for (int k = 0; k < 4; ++k) {
        if (hex_digit(*at_++) < 0) return std::nullopt;
      }
    } else if (std::string_view("\"\\/bfnrt").find(escaped) == std::string_view::npos) {
      return std::nullopt;
    }
  }
}

bool Cursor::skip_number() {
  take('-');
  if (!is_digit(peek())) return false;
  if (peek() == '0') {
    ++at_;
  } else {
    while (is_digit(peek())) ++at_;
  }
  if (take('.')) {
    if (!is_digit(peek())) return false;
    while (is_digit(peek())) ++at_;
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!is_digit(peek())) return false;
    while (is_digit(peek())) ++at_;
  }
  // At the end of the data the number may go on.
  return at_ != end_;
}

bool Cursor::skip_value(int depth) {
  if (depth > kMaxDepth) return false;
  bool has_escapes = false;
  switch (peek()) {
    case '"':
      return string(has_escapes).has_value();
    case '{':
    case '[': {
      const bool is_object = *at_++ == '{';
      const char close = is_object ? '}' : ']';
      skip_space();
      if (take(close)) return true;
      while (true) {
        if (is_object) {
          skip_space();
          if (!string(has_escapes)) return false;
          skip_space();
          if (!take(':')) return false;
        }
        skip_space();
        if (!skip_value(depth + 1)) return false;
        skip_space();
        if (take(close)) return true;
        if (!take(',')) return false;
      }
    }
    case 't':
    case 'f':
    case 'n':
      for (const std::string_view word : {"true", "false", "null"}) {
        if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) {
          at_ += word.size();
          return true;
        }
      }
      return false;
    default:
      return skip_number();
  }
}

std::optional<std::int64_t> Cursor::integer() {
  const bool negative = take('-');
  const char* begin = at_;
  std::int64_t value = 0;
  while (is_digit(peek())) {
    if (at_ - begin == 18) return std::nullopt;
    value = 10 * value + (*at_++ - '0');
  }
  const auto digits = at_ - begin;
  if (digits == 0 || (*begin == '0' && (digits > 1 || negative))) return std::nullopt;
  const char next = peek();
  if (at_ == end_ || next == '.' || next == 'e' || next == 'E') return std::nullopt;
  return negative ? -value : value;
}

std::optional<std::int64_t> Cursor::nanoseconds() {
  const bool quoted = take('"');
  const bool negative = take('-');
  const char* begin = at_;
  std::int64_t value = 0;
  while (is_digit(peek())) {
    if (at_ - begin == 15) return std::nullopt;
    value = 10 * value + (*at_++ - '0');
  }
  const auto digits = at_ - begin;
  if (digits == 0 || (*begin == '0' && digits > 1)) return std::nullopt;
  int scaled = 0;
  bool up = false;
  if (take('.')) {
    const char* decimals = at_;
    while (is_digit(peek())) {
      const auto place = at_ - decimals;
      if (place < 3) {
        value = 10 * value + (*at_ - '0');
        ++scaled;
      } else if (place == 3) {
        up = *at_ >= '5';
      }
      ++at_;
    }
    if (at_ == decimals) return std::nullopt;
  }
  for (; scaled < 3; ++scaled) value *= 10;
  value += up;
  const char next = peek();
  if (at_ == end_ || next == 'e' || next == 'E') return std::nullopt;
  if (quoted && !take('"')) return std::nullopt;
  return negative ? -value : value;
}

std::optional<std::string> unescape(std::string_view written) {
  std::string text;
  text.reserve(written.size());
  for (std::size_t at = 0; at < written.size(); ++at) {
    if (written[at] != '\\') {
      text += written[at];
      continue;
    }
    const char escaped = written[++at];
    if (escaped != 'u') {
      text += meaning(escaped);
      continue;
    }
    unsigned code = 0;
    for (int k = 0; k < 4; ++k) {
      code = code << 4 | static_cast<unsigned>(hex_digit(written[++at]));
    }
    if (code >= 0xD800 && code < 0xE000) return std::nullopt;
    append_utf8(text, code);
  }
  return text;
}

}  // namespace hvdtune::scan
