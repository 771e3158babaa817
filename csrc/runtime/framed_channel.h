// Authenticated messages over one connection.
#pragma once

#include <poll.h>

#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/handshake.h"
#include "wire/frame.h"

namespace hvdtune {

// Thread rule: one thread.
class FramedChannel {
 public:
  FramedChannel(SecureChannel channel, int self)
      : channel_(std::move(channel)),
        encoder_(channel_.session, self),
        decoder_(channel_.session, channel_.peer) {}

  // Waits until all bytes are with the kernel. Throws as Socket::send_all. REQUIRES: nothing is
  // left of what queue() took.
  void send(FrameKind kind, Bytes payload, Deadline deadline, const StopSignal& stop);
  // Never waits. What the kernel does not take is kept for flush(). Neither says that the peer is
  // gone: receive() does, after what the peer sent before it went.
  void queue(FrameKind kind, Bytes payload);
  void flush();
  bool has_unsent() const { return !unsent_.empty(); }
  // Bytes that were sent or queued and not acknowledged. Hands the kernel as many as it takes.
  size_t undelivered_bytes();

  // The next message that has arrived in full. Never waits. Throws Error(kRankLost) when the peer
  // is gone and Error(kInternal) when its bytes are not what the session key signs.
  std::optional<Frame> receive();

  int fd() const { return channel_.socket.fd(); }
  int peer() const { return channel_.peer; }

 private:
  SecureChannel channel_;
  FrameEncoder encoder_;
  FrameDecoder decoder_;
  std::vector<uint8_t> unsent_;
};

inline pollfd poll_entry(const FramedChannel& channel) {
  const short events = channel.has_unsent() ? POLLIN | POLLOUT : POLLIN;
  return {channel.fd(), events, 0};
}

}  // namespace hvdtune
