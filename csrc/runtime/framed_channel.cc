#include "runtime/framed_channel.h"

#include <array>

#include "base/failpoint.h"
#include "base/status.h"

namespace hvdtune {

void FramedChannel::send(FrameKind kind, Bytes payload, Deadline deadline, const StopSignal& stop) {
  const std::vector<uint8_t> bytes = encoder_.encode(kind, payload);
  FAILPOINT_ON("frame/send", fd());
  channel_.socket.send_all(bytes.data(), bytes.size(), deadline, stop);
}

void FramedChannel::queue(FrameKind kind, Bytes payload) {
  const std::vector<uint8_t> bytes = encoder_.encode(kind, payload);
  FAILPOINT_ON("frame/queue", fd());
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  flush();
}

void FramedChannel::flush() {
  if (unsent_.empty()) return;
  try {
    const size_t sent = channel_.socket.try_send(unsent_.data(), unsent_.size());
    unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<ptrdiff_t>(sent));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kRankLost) throw;
    unsent_.clear();
  }
}

size_t FramedChannel::undelivered_bytes() {
  flush();
  return unsent_.size() + channel_.socket.undelivered_bytes();
}

std::optional<Frame> FramedChannel::receive() {
  if (auto frame = decoder_.next()) return frame;
  std::array<uint8_t, 16384> buffer;
  while (const size_t got = channel_.socket.try_recv(buffer.data(), buffer.size())) {
    FAILPOINT_ON("frame/received", fd());
    decoder_.feed(Bytes(buffer).first(got));
    if (auto frame = decoder_.next()) return frame;
  }
  return std::nullopt;
}

}  // namespace hvdtune
