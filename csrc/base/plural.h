// Counts with their nouns, for messages.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace hvdtune {

// "1 rank", "2 ranks". For nouns whose plural ends in -s.
std::string counted(std::integral auto count, std::string_view noun) {
  return std::to_string(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

}  // namespace hvdtune
