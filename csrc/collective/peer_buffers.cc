#include "collective/peer_buffers.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/status.h"

namespace hvdtune {
namespace {

struct ShownSegment {
  uint64_t base;
  SegmentOffer offer;
};

struct ShownPiece {
  uint64_t input;
  uint64_t output;
  uint64_t bytes;
};

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

uint8_t* pointer_to(uint64_t address) { return reinterpret_cast<uint8_t*>(address); }

bool in_pool(const Payload& payload, std::span<const Pool::SegmentRange> ranges) {
  const auto held = [&](const uint8_t* address, size_t bytes) {
    return std::ranges::any_of(ranges, [&](const auto& r) { return r.holds(address, bytes); });
  };
  return std::ranges::all_of(payload.pieces(), [&](const Payload::Piece& piece) {
    return held(piece.input, piece.bytes) && held(piece.output, piece.bytes);
  });
}

}  // namespace

static_assert(sizeof(PeerBufferHeader) <= kPeerBufferHeaderBytes);

bool publish_buffers(const Payload& payload, const Pool& pool, bool may_pack, uint8_t* slot,
                     size_t slot_bytes) {
  auto& header = *reinterpret_cast<PeerBufferHeader*>(slot);
  uint8_t* rest = slot + kPeerBufferHeaderBytes;
  const std::vector<Pool::SegmentRange> ranges = pool.ranges();
  const bool mapped = !ranges.empty() && in_pool(payload, ranges);
  header = {.bytes = payload.bytes(),
            .where = mapped ? BufferLocation::kMapped : BufferLocation::kPrivate,
            .has_peer_access = 0,
            .segments = static_cast<uint32_t>(mapped ? ranges.size() : 0),
            .pieces = static_cast<uint32_t>(payload.pieces().size()),
            .ways = {}};
  if (!mapped && may_pack) {
    header.where = BufferLocation::kPacked;
    return true;
  }
  const size_t needed = kPeerBufferHeaderBytes + header.segments * sizeof(ShownSegment) +
                        header.pieces * sizeof(ShownPiece);
  if (needed > slot_bytes) return false;
  if (mapped) {
    for (const Pool::SegmentRange& range : ranges) {
      const ShownSegment segment{number_of(range.base), range.offer};
      std::memcpy(rest, &segment, sizeof segment);
      rest += sizeof segment;
    }
  }
  for (const Payload::Piece& piece : payload.pieces()) {
    const ShownPiece shown{number_of(piece.input), number_of(piece.output), piece.bytes};
    std::memcpy(rest, &shown, sizeof shown);
    rest += sizeof shown;
  }
  return true;
}

PeerBuffers::PeerBuffers(const Payload& own) : where_(BufferLocation::kMapped) {
  for (const Payload::Piece& piece : own.pieces()) {
    views_.push_back({number_of(piece.input), number_of(piece.output), piece.begin, piece.bytes});
  }
}

PeerBuffers::PeerBuffers(const uint8_t* slot, uint8_t* exchange, size_t bytes, PeerMemory& memory)
    : memory_(&memory) {
  PeerBufferHeader header;
  std::memcpy(&header, slot, sizeof header);
  where_ = header.where;
  const uint8_t* rest = slot + kPeerBufferHeaderBytes;
  size_t begin = 0;
  if (where_ == BufferLocation::kPacked) {
    begin = header.bytes;
    views_.push_back({number_of(exchange), number_of(exchange), 0, begin});
  } else {
    const uint8_t* piece = rest + header.segments * sizeof(ShownSegment);
    for (uint32_t i = 0; i < header.pieces; ++i, piece += sizeof(ShownPiece)) {
      ShownPiece shown;
      std::memcpy(&shown, piece, sizeof shown);
      views_.push_back({shown.input, shown.output, begin, shown.bytes});
      begin += shown.bytes;
    }
  }
  if (begin != bytes) {
    throw Error(ErrorCode::kInternal,
                "rank " + std::to_string(memory.rank()) + " shares " + std::to_string(begin) +
                    " bytes of a buffer that has " + std::to_string(bytes) + " bytes on this rank",
                memory.rank());
  }
  if (where_ == BufferLocation::kMapped) map(rest, header.segments);
}

// Mapping a segment may fail although all ranks expect it to work, for example for lack of
// descriptors. Then the peer's process is read instead, which is slower. If that is forbidden, this
// rank fails.
void PeerBuffers::map(const uint8_t* segments, size_t count) {
  try {
    views_ = mapped(segments, count);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kRankLost) throw;
    if (!memory_->reachable()) throw Error(ErrorCode::kInternal, error.what());
    where_ = BufferLocation::kPrivate;
  }
}

std::vector<PeerBuffers::View> PeerBuffers::mapped(const uint8_t* segments, size_t count) const {
  std::vector<View> views = views_;
  const auto translate = [&](uint64_t& address) {
    for (size_t i = 0; i < count; ++i) {
      ShownSegment segment;
      std::memcpy(&segment, segments + i * sizeof segment, sizeof segment);
      if (address < segment.base || address >= segment.base + segment.offer.bytes) continue;
      address = number_of(memory_->mapped(segment.offer)) + (address - segment.base);
      return;
    }
    throw Error(ErrorCode::kInternal, "rank " + std::to_string(memory_->rank()) +
                                          " shares memory outside of its segments");
  };
  for (View& view : views) {
    translate(view.input);
    translate(view.output);
  }
  return views;
}

size_t PeerBuffers::find(size_t offset) const {
  const auto view =
      std::upper_bound(views_.begin(), views_.end(), offset,
                       [](size_t at, const View& v) { return at < v.begin + v.bytes; });
  return static_cast<size_t>(view - views_.begin());
}

template <typename Visit>
void PeerBuffers::each(size_t offset, size_t bytes, Visit visit) const {
  size_t index = find(offset);
  for (size_t done = 0; done < bytes; ++index) {
    const View& view = views_[index];
    const size_t within = offset + done - view.begin;
    const size_t part = std::min(bytes - done, view.bytes - within);
    visit(view, within, done, part);
    done += part;
  }
}

const uint8_t* PeerBuffers::input(size_t offset, size_t bytes, uint8_t* scratch) const {
  if (where_ == BufferLocation::kPrivate) {
    std::vector<PeerMemory::RemoteRange> ranges;
    each(offset, bytes, [&](const View& view, size_t within, size_t, size_t part) {
      ranges.push_back({view.input + within, part});
    });
    memory_->read(ranges, scratch);
    return scratch;
  }
  const View& first = views_[find(offset)];
  if (offset + bytes <= first.begin + first.bytes) {
    return pointer_to(first.input + (offset - first.begin));
  }
  each(offset, bytes, [&](const View& view, size_t within, size_t done, size_t part) {
    std::memcpy(scratch + done, pointer_to(view.input + within), part);
  });
  return scratch;
}

uint8_t* PeerBuffers::output(size_t offset, size_t bytes) const {
  if (where_ == BufferLocation::kPrivate) return nullptr;
  const View& first = views_[find(offset)];
  const bool whole = offset + bytes <= first.begin + first.bytes;
  return whole ? pointer_to(first.output + (offset - first.begin)) : nullptr;
}

void PeerBuffers::deliver(size_t offset, size_t bytes, const uint8_t* from) const {
  if (where_ == BufferLocation::kPrivate) {
    std::vector<PeerMemory::RemoteRange> ranges;
    each(offset, bytes, [&](const View& view, size_t within, size_t, size_t part) {
      ranges.push_back({view.output + within, part});
    });
    return memory_->write(from, ranges);
  }
  each(offset, bytes, [&](const View& view, size_t within, size_t done, size_t part) {
    std::memcpy(pointer_to(view.output + within), from + done, part);
  });
}

}  // namespace hvdtune
