#include "collective/alltoall.h"

#include <cstring>

namespace hvdtune {

void alltoall(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
              uint8_t* output, std::span<const size_t> recv_bytes) {
  std::vector<Transfer> transfers;
  for (int rank = 0; rank < group.size(); ++rank) {
    const size_t out = send_bytes[static_cast<size_t>(rank)];
    const size_t in = recv_bytes[static_cast<size_t>(rank)];
    if (rank != group.rank()) {
      transfers.push_back({&group.link(rank), input, out, output, in});
    } else if (in > 0) {
      group.observe(Phase::kPack, in, [&] { std::memcpy(output, input, in); });
    }
    input += out;
    output += in;
  }
  group.exchange(transfers);
}

}  // namespace hvdtune
