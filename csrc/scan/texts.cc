#include "scan/texts.h"

namespace hvdtune::scan {

std::int32_t Texts::add(std::string_view text) {
  const auto known = codes_.find(text);
  if (known != codes_.end()) return known->second;
  const auto number = static_cast<std::int32_t>(texts_.size());
  codes_.emplace(texts_.emplace_back(text), number);
  return number;
}

}  // namespace hvdtune::scan
