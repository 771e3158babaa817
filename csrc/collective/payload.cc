#include "collective/payload.h"

#include <algorithm>
#include <cstring>

namespace hvdtune {

void Payload::add(const uint8_t* input, uint8_t* output, size_t bytes) {
  if (bytes == 0) return;
  pieces_.push_back({input, output, total_, bytes});
  total_ += bytes;
}

template <typename Copy>
void Payload::each(size_t offset, size_t bytes, Copy copy) const {
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](size_t at, const Piece& p) { return at < p.begin + p.bytes; });
  for (size_t done = 0; done < bytes; ++piece) {
    const size_t within = offset + done - piece->begin;
    const size_t part = std::min(bytes - done, piece->bytes - within);
    copy(*piece, within, done, part);
    done += part;
  }
}

void Payload::pack(size_t offset, size_t bytes, uint8_t* to) const {
  each(offset, bytes, [to](const Piece& piece, size_t within, size_t done, size_t part) {
    std::memcpy(to + done, piece.input + within, part);
  });
}

void Payload::unpack(size_t offset, size_t bytes, const uint8_t* from) const {
  each(offset, bytes, [from](const Piece& piece, size_t within, size_t done, size_t part) {
    std::memcpy(piece.output + within, from + done, part);
  });
}

}  // namespace hvdtune
