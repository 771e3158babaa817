// How a chunk is divided among ranks.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvdtune {

struct Share {
  size_t begin = 0;  // elements
  size_t count = 0;
};

// Part `index` of `count` elements in `parts` parts whose bounds are multiples of `grain` elements,
// so that no two parts meet within a cache line. Trailing parts may be empty.
inline Share share_of(size_t count, int parts, int index, size_t grain = 16) {
  const auto n = static_cast<size_t>(parts);
  const size_t each = (count + n - 1) / n;
  const size_t step = (each + grain - 1) / grain * grain;
  const size_t begin = std::min(count, step * static_cast<size_t>(index));
  return {begin, std::min(count, begin + step) - begin};
}

}  // namespace hvdtune
