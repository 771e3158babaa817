// One block of bytes for each rank, one after the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace hvdtune {

template <typename Byte>
class RankBlocks {
 public:
  RankBlocks(Byte* memory, std::span<const size_t> bytes) : bytes_(bytes) {
    for (const size_t block : bytes) {
      begins_.push_back(memory);
      memory += block;
    }
  }
  Byte* at(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  size_t bytes(int rank) const { return bytes_[static_cast<size_t>(rank)]; }
  size_t longest() const { return *std::ranges::max_element(bytes_); }
  // How much of [begin, begin + step) a rank's block has.
  size_t part(int rank, size_t begin, size_t step) const {
    return std::min(step, bytes(rank) - std::min(bytes(rank), begin));
  }

 private:
  std::span<const size_t> bytes_;
  std::vector<Byte*> begins_;
};

}  // namespace hvdtune
