#include "wire/frame.h"

#include <cstring>
#include <string>

#include "wire/codec.h"
#include "wire/message.h"

namespace hvdtune {

std::vector<uint8_t> FrameEncoder::encode(FrameKind kind, Bytes payload) {
  if (payload.size() > kFramePayloadCap) {
    throw Error(ErrorCode::kUsage, "a control message of " + std::to_string(payload.size()) +
                                       " bytes is over the cap of 64 MiB");
  }
  Writer header;
  header.put(static_cast<uint32_t>(payload.size()));
  header.put(kWireVersion);
  header.put(kind);
  header.put(uint16_t{0});
  header.put(from_rank_);
  header.put(sequence_++);
  std::vector<uint8_t> bytes = header.take();
  bytes.reserve(bytes.size() + payload.size() + kFrameMacBytes);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  const Digest mac = hmac_.sign(bytes);
  bytes.insert(bytes.end(), mac.begin(), mac.begin() + kFrameMacBytes);
  return bytes;
}

void FrameDecoder::feed(Bytes bytes) {
  if (used_ > 0) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<ptrdiff_t>(used_));
    used_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Frame> FrameDecoder::next() {
  const Bytes rest = Bytes(buffer_).subspan(used_);
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  Reader header(rest.first(kFrameHeaderBytes));
  const size_t payload_bytes = header.get<uint32_t>();
  const uint8_t version = header.get<uint8_t>();
  const uint8_t kind = header.get<uint8_t>();
  const uint16_t zero = header.get<uint16_t>();
  const int32_t from = header.get<int32_t>();
  const uint64_t sequence = header.get<uint64_t>();
  if (payload_bytes > kFramePayloadCap || version != kWireVersion || kind >= kFrameKindCount ||
      zero != 0 || from != from_rank_ || sequence != sequence_) {
    throw Error(ErrorCode::kInternal, "a control frame has a wrong header", from_rank_);
  }
  const size_t signed_bytes = kFrameHeaderBytes + payload_bytes;
  if (rest.size() < signed_bytes + kFrameMacBytes) return std::nullopt;
  const Digest mac = hmac_.sign(rest.first(signed_bytes));
  if (!digests_equal(Bytes(mac).first(kFrameMacBytes),
                     rest.subspan(signed_bytes, kFrameMacBytes))) {
    throw Error(ErrorCode::kInternal, "a control frame has a wrong MAC", from_rank_);
  }
  ++sequence_;
  used_ += signed_bytes + kFrameMacBytes;
  const Bytes payload = rest.subspan(kFrameHeaderBytes, payload_bytes);
  return Frame{static_cast<FrameKind>(kind), {payload.begin(), payload.end()}};
}

}  // namespace hvdtune
