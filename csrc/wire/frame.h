// Authenticated framing of messages on a byte stream.
//
//   frame = u32 payload_bytes, u8 version, u8 kind, u16 goes_on, i32 from_rank, u64 sequence,
//           payload, 16 bytes of HMAC-SHA-256(session key, all before)
//
// A message that is longer than a frame may be travels as several frames of its kind, one right
// after the other; goes_on is 1 in all but the last of them, 0 elsewhere.
//
// A frame with the wrong length, version, kind, sender, sequence or MAC ends the connection:
// nothing of it is parsed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/hmac.h"

namespace hvdtune {

enum class FrameKind : uint8_t {
  kAnnounce,
  kCycle,
  kPing,
  kPong,
  kLost,
  kBye,
  kStep,
  kAdopted,
  kPropose,
  kLeft,
  kIdentity,
  kProbeRequest,
  kProbeResult,
  kAsk,
  kReport,
  kPage,
  kGiveUp,
  kTimeline,
  kDeclared,
};
inline constexpr int kFrameKindCount = 19;

inline constexpr size_t kFrameHeaderBytes = 20;
inline constexpr size_t kFrameMacBytes = 16;
inline constexpr size_t kFramePayloadCap = size_t{64} << 20;
// About five million tensors that are new in one cycle.
inline constexpr size_t kMessageCap = size_t{1} << 30;

// A whole message, in however many frames it came.
struct Frame {
  FrameKind kind;
  std::vector<uint8_t> payload;
};

// One direction of one connection. Not thread-safe.
class FrameEncoder {
 public:
  // A frame holds at most `frame_cap` bytes of a message.
  FrameEncoder(const Key& session, int from_rank, size_t frame_cap = kFramePayloadCap)
      : hmac_(session), from_rank_(from_rank), frame_cap_(frame_cap) {}
  // The frames of a message. Throws Error(kUsage) when the payload is over kMessageCap.
  std::vector<uint8_t> encode(FrameKind kind, Bytes payload);

 private:
  void append(FrameKind kind, Bytes part, bool goes_on, std::vector<uint8_t>& frames);

  Hmac hmac_;
  int32_t from_rank_;
  size_t frame_cap_;
  uint64_t sequence_ = 0;
};

class FrameDecoder {
 public:
  FrameDecoder(const Key& session, int from_rank) : hmac_(session), from_rank_(from_rank) {}
  // Takes received bytes in any pieces.
  void feed(Bytes bytes);
  // The next whole message. Throws Error(kInternal) on a frame that is not the peer's.
  std::optional<Frame> next();

 private:
  bool next_frame();

  Hmac hmac_;
  int32_t from_rank_;
  uint64_t sequence_ = 0;
  std::vector<uint8_t> buffer_;
  size_t used_ = 0;
  std::optional<Frame> begun_;  // the message whose frames are coming
  bool goes_on_ = false;        // it is not whole yet
};

}  // namespace hvdtune
