// The tensors of a bucket, seen as one run of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hvdtune {

// The memory is the caller's; input and output of a tensor may be the same.
class Payload {
 public:
  void add(const uint8_t* input, uint8_t* output, size_t bytes);
  size_t bytes() const { return total_; }
  // A tensor that is not empty, `begin` bytes into the run.
  struct Piece {
    const uint8_t* input;
    uint8_t* output;
    size_t begin;
    size_t bytes;
  };
  // In order.
  std::span<const Piece> pieces() const { return pieces_; }

  // Copy [offset, offset + bytes) of the concatenated inputs out, or of the outputs in.
  void pack(size_t offset, size_t bytes, uint8_t* to) const;
  void unpack(size_t offset, size_t bytes, const uint8_t* from) const;

 private:
  template <typename Copy>
  void each(size_t offset, size_t bytes, Copy copy) const;

  std::vector<Piece> pieces_;
  size_t total_ = 0;
};

}  // namespace hvdtune
