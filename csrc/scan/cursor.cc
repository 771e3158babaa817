#include "scan/cursor.h"

namespace hvdtune::scan {
namespace {

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

bool Cursor::skip_escape() {
  if (*at_ != '\\' || end_ - at_ < 2) return false;
  const char escaped = at_[1];
  at_ += 2;
  if (escaped != 'u') {
    return std::string_view("\"\\/bfnrt").find(escaped) != std::string_view::npos;
  }
  if (end_ - at_ < 4) return false;
  for (int k = 0; k < 4; ++k) {
    if (hex_digit(*at_++) < 0) return false;
  }
  return true;
}

bool Cursor::skip_container(int depth) {
  if (peek() != '{' && peek() != '[') return skip_word();
  const bool is_object = *at_++ == '{';
  const char close = is_object ? '}' : ']';
  skip_space();
  if (take(close)) return true;
  while (true) {
    if (is_object) {
      bool has_escapes = false;
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

bool Cursor::skip_word() {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word)) {
      at_ += word.size();
      return true;
    }
  }
  return false;
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
