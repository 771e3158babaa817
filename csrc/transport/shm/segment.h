// A piece of memory shared by processes of one host. It is a memfd: it has no name in any file
// system, so nothing is left behind, whoever is killed when.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/unique_fd.h"

namespace hvdtune {

// How another process of the same host and user finds a segment; travels between ranks.
struct SegmentOffer {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t bytes = 0;
  std::array<uint8_t, 16> cookie{};  // the first bytes of the segment
};

class Segment {
 public:
  // Zeroed, of fixed size; throws Error(kInternal).
  static Segment create(size_t bytes);
  // Throws Error(kInternal, ..., rank) when this is not possible, as between containers.
  static Segment open(const SegmentOffer& offer, int rank);

  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;

  // The first kReserved bytes belong to the segment itself.
  static constexpr size_t kReserved = 64;
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Valid until close_fd(). REQUIRES: made by create().
  SegmentOffer offer() const;
  // Ends the offer; the memory stays.
  void close_fd() { fd_.reset(); }
  // In a child of fork: what this process writes from here on is its own. REQUIRES: not closed.
  void make_private();

 private:
  Segment(UniqueFd fd, size_t bytes);

  UniqueFd fd_;
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hvdtune
