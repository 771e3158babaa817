// How a chunk is divided among ranks.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvdtune {

struct ElementRange {
  size_t begin = 0;  // elements
  size_t count = 0;
};

// Part `index` of `count` elements in `parts` parts, of which no two meet within a cache line where
// the elements start at one. Trailing parts may be empty.
inline ElementRange part_of(size_t count, int parts, int index, size_t element_bytes) {
  const size_t grain = 64 / element_bytes;
  const auto n = static_cast<size_t>(parts);
  const size_t each = (count + n - 1) / n;
  const size_t step = (each + grain - 1) / grain * grain;
  const size_t begin = std::min(count, step * static_cast<size_t>(index));
  return {begin, std::min(count, begin + step) - begin};
}

}  // namespace hvdtune
