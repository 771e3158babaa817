#include "wire/frame.h"

#include <cstring>
#include <string>
#include <utility>

#include "wire/codec.h"
#include "wire/message.h"

namespace hvdtune {

std::vector<uint8_t> FrameEncoder::encode(FrameKind kind, Bytes payload) {
  if (payload.size() > kMessageCap) {
    throw Error(ErrorCode::kUsage, "a control message of " + std::to_string(payload.size()) +
                                       " bytes exceeds the maximum of 1 GiB");
  }
  std::vector<uint8_t> frames;
  frames.reserve(payload.size() +
                 (payload.size() / frame_cap_ + 1) * (kFrameHeaderBytes + kFrameMacBytes));
  while (payload.size() > frame_cap_) {
    append(kind, payload.first(frame_cap_), true, frames);
    payload = payload.subspan(frame_cap_);
  }
  append(kind, payload, false, frames);
  return frames;
}

void FrameEncoder::append(FrameKind kind, Bytes part, bool goes_on, std::vector<uint8_t>& frames) {
  Writer header;
  header.put(static_cast<uint32_t>(part.size()));
  header.put(kWireVersion);
  header.put(kind);
  header.put(uint16_t{goes_on});
  header.put(from_rank_);
  header.put(sequence_++);
  const std::vector<uint8_t> begin = header.take();
  const size_t at = frames.size();
  frames.insert(frames.end(), begin.begin(), begin.end());
  frames.insert(frames.end(), part.begin(), part.end());
  const Digest mac = hmac_.sign(Bytes(frames).subspan(at));
  frames.insert(frames.end(), mac.begin(), mac.begin() + kFrameMacBytes);
}

void FrameDecoder::feed(Bytes bytes) {
  if (used_ > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(used_));
    used_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Frame> FrameDecoder::next() {
  while (next_frame()) {
    if (!goes_on_) return std::exchange(begun_, std::nullopt);
  }
  return std::nullopt;
}

// Takes one frame more of the message, if it is there.
bool FrameDecoder::next_frame() {
  const Bytes rest = Bytes(buffer_).subspan(used_);
  if (rest.size() < kFrameHeaderBytes) return false;
  Reader header(rest.first(kFrameHeaderBytes));
  const size_t payload_bytes = header.get<uint32_t>();
  const uint8_t version = header.get<uint8_t>();
  const uint8_t kind = header.get<uint8_t>();
  const uint16_t goes_on = header.get<uint16_t>();
  const int32_t from = header.get<int32_t>();
  const uint64_t sequence = header.get<uint64_t>();
  const size_t before = begun_ ? begun_->payload.size() : 0;
  if (payload_bytes > kFramePayloadCap || before + payload_bytes > kMessageCap ||
      version != kWireVersion || kind >= kFrameKindCount || goes_on > 1 || from != from_rank_ ||
      sequence != sequence_ || (begun_ && static_cast<FrameKind>(kind) != begun_->kind)) {
    throw Error(ErrorCode::kInternal, "a control frame has a wrong header", from_rank_);
  }
  const size_t signed_bytes = kFrameHeaderBytes + payload_bytes;
  if (rest.size() < signed_bytes + kFrameMacBytes) return false;
  const Digest mac = hmac_.sign(rest.first(signed_bytes));
  if (!digests_equal(Bytes(mac).first(kFrameMacBytes),
                     rest.subspan(signed_bytes, kFrameMacBytes))) {
    throw Error(ErrorCode::kInternal, "a control frame has a wrong MAC", from_rank_);
  }
  ++sequence_;
  used_ += signed_bytes + kFrameMacBytes;
  const Bytes payload = rest.subspan(kFrameHeaderBytes, payload_bytes);
  if (!begun_) begun_ = Frame{static_cast<FrameKind>(kind), {}};
  begun_->payload.insert(begun_->payload.end(), payload.begin(), payload.end());
  goes_on_ = goes_on == 1;
  return true;
}

}  // namespace hvdtune
