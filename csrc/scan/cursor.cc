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

// nullptr: it is none, as of the next.
const char* Cursor::behind_escape(const char* at, const char* end) {
  if (*at != '\\' || end - at < 2) return nullptr;
  const char escaped = at[1];
  at += 2;
  if (escaped != 'u') {
    return std::string_view("\"\\/bfnrt").find(escaped) != std::string_view::npos ? at : nullptr;
  }
  if (end - at < 4) return nullptr;
  for (int k = 0; k < 4; ++k) {
    if (hex_digit(*at++) < 0) return nullptr;
  }
  return at;
}

const char* Cursor::behind_container(Cursor cursor, int depth) {
  const char open = cursor.peek();
  if (open != '{' && open != '[') return cursor.skip_word() ? cursor.at_ : nullptr;
  const char close = open == '{' ? '}' : ']';
  ++cursor.at_;
  cursor.skip_space();
  if (cursor.take(close)) return cursor.at_;
  while (true) {
    if (open == '{') {
      bool has_escapes = false;
      cursor.skip_space();
      if (!cursor.string(has_escapes)) return nullptr;
      cursor.skip_space();
      if (!cursor.take(':')) return nullptr;
    }
    cursor.skip_space();
    if (!cursor.skip_value(depth + 1)) return nullptr;
    cursor.skip_space();
    if (cursor.take(close)) return cursor.at_;
    if (!cursor.take(',')) return nullptr;
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
