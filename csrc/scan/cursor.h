// A strict reader of JSON values in memory. Every function returns false, or nothing, where the
// text is not what it reads or ends too early; the cursor then stands anywhere.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hvdtune::scan {

class Cursor {
 public:
  Cursor(const char* at, const char* end) : at_(at), end_(end) {}

  const char* at() const { return at_; }
  bool done() const { return at_ == end_; }
  char peek() const { return at_ == end_ ? '\0' : *at_; }

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
};

// The text that escapes stand for; nothing for half of a surrogate pair, and whole pairs too.
std::optional<std::string> unescape(std::string_view written);

}  // namespace hvdtune::scan
