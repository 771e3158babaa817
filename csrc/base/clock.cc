#include "base/clock.h"

namespace hvdtune {

std::string seconds_text(std::chrono::nanoseconds time) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  std::string text = std::to_string(static_cast<double>(ms) / 1000.0);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

}  // namespace hvdtune
