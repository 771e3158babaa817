#include "collective/broadcast.h"

#include <cstring>

namespace hvdtune {

void broadcast(Group& group, int root, const uint8_t* input, uint8_t* output, size_t bytes) {
  std::vector<Transfer> transfers;
  if (group.rank() == root) {
    for (int rank = 0; rank < group.size(); ++rank) {
      if (rank != root) transfers.push_back({&group.link(rank), input, bytes, nullptr, 0});
    }
    if (input != output && bytes > 0) std::memcpy(output, input, bytes);
  } else {
    transfers.push_back({&group.link(root), nullptr, 0, output, bytes});
  }
  group.exchange(transfers);
}

}  // namespace hvdtune
