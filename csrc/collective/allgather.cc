#include "collective/allgather.h"

#include <cstring>

namespace hvdtune {

void allgather(Group& group, const uint8_t* input, uint8_t* output,
               std::span<const size_t> block_bytes) {
  const size_t mine = block_bytes[static_cast<size_t>(group.rank())];
  std::vector<Transfer> transfers;
  size_t offset = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    const size_t theirs = block_bytes[static_cast<size_t>(rank)];
    if (rank == group.rank()) {
      if (mine > 0) std::memcpy(output + offset, input, mine);
    } else {
      transfers.push_back({&group.link(rank), input, mine, output + offset, theirs});
    }
    offset += theirs;
  }
  group.exchange(transfers);
}

}  // namespace hvdtune
