// Authenticated framing of messages on a byte stream.
//
//   frame = u32 payload_bytes, u8 version, u8 kind, u16 zero, i32 from_rank, u64 sequence,
//           payload, 16 bytes of HMAC-SHA-256(session key, all before)
//
// A frame with the wrong length, version, sender, sequence or MAC ends the connection: nothing of
// it is parsed.
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
};
inline constexpr int kFrameKindCount = 18;

inline constexpr size_t kFrameHeaderBytes = 20;
inline constexpr size_t kFrameMacBytes = 16;
inline constexpr size_t kFramePayloadCap = size_t{64} << 20;

struct Frame {
  FrameKind kind;
  std::vector<uint8_t> payload;
};

// One direction of one connection. Not thread-safe.
class FrameEncoder {
 public:
  FrameEncoder(const Key& session, int from_rank) : hmac_(session), from_rank_(from_rank) {}
  // Throws Error(kUsage) when the payload is over the cap.
  std::vector<uint8_t> encode(FrameKind kind, Bytes payload);

 private:
  Hmac hmac_;
  int32_t from_rank_;
  uint64_t sequence_ = 0;
};

class FrameDecoder {
 public:
  FrameDecoder(const Key& session, int from_rank) : hmac_(session), from_rank_(from_rank) {}
  // Takes received bytes in any pieces.
  void feed(Bytes bytes);
  // The next whole frame. Throws Error(kInternal) on one that is not the peer's.
  std::optional<Frame> next();

 private:
  Hmac hmac_;
  int32_t from_rank_;
  uint64_t sequence_ = 0;
  std::vector<uint8_t> buffer_;
  size_t used_ = 0;
};

}  // namespace hvdtune
