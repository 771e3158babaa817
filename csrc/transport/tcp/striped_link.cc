#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/status.h"
#include "base/unique_fd.h"
#include "transport/tcp/link.h"

namespace hvdtune {
namespace {

// Large enough that a stripe costs few calls, small enough that every stream's kernel buffer holds
// one while the others move.
constexpr uint64_t kStripeBytes = 64 * 1024;

// Byte p of a direction travels over stream (p / kStripeBytes) % streams, so neither side needs to
// be told where a stripe belongs. Both wait only for the stream whose turn it is; the others drain
// and fill in the kernel meanwhile.
class StripedLink final : public Link {
 public:
  explicit StripedLink(std::vector<Socket> streams);

  size_t try_send(const void* data, size_t bytes) override;
  size_t try_recv(void* data, size_t bytes) override;
  int fd() const override { return epoll_.get(); }
  short sleep_events(bool want_send, bool want_recv) override;
  void wake_up() override;
  void check_answers(uint64_t now_ns) override;
  size_t undelivered_bytes() const override;
  int peer() const override { return streams_.front().peer(); }

 private:
  size_t turn_of(uint64_t position) const { return position / kStripeBytes % streams_.size(); }
  template <typename Move>
  size_t move(uint64_t& position, size_t bytes, Move move_on);
  void watch(size_t stream, uint32_t events);

  std::vector<Socket> streams_;
  UniqueFd epoll_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  std::vector<size_t> watched_;
};

StripedLink::StripedLink(std::vector<Socket> streams)
    : streams_(std::move(streams)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw system_failure("epoll_create1", errno);
}

template <typename Move>
size_t StripedLink::move(uint64_t& position, size_t bytes, Move move_on) {
  size_t done = 0;
  while (done < bytes) {
    const size_t part = std::min<uint64_t>(bytes - done, kStripeBytes - position % kStripeBytes);
    size_t moved = 0;
    try {
      moved = move_on(streams_[turn_of(position)], done, part);
    } catch (const Error&) {
      // What was moved before counts; the next call finds the same.
      if (done == 0) throw;
    }
    position += moved;
    done += moved;
    if (moved < part) break;
  }
  return done;
}

size_t StripedLink::try_send(const void* data, size_t bytes) {
  return move(sent_, bytes, [data](Socket& stream, size_t at, size_t part) {
    return stream.try_send(static_cast<const uint8_t*>(data) + at, part);
  });
}

size_t StripedLink::try_recv(void* data, size_t bytes) {
  return move(received_, bytes, [data](Socket& stream, size_t at, size_t part) {
    return stream.try_recv(static_cast<uint8_t*>(data) + at, part);
  });
}

short StripedLink::sleep_events(bool want_send, bool want_recv) {
  const size_t out = turn_of(sent_);
  const size_t in = turn_of(received_);
  if (want_send && want_recv && out == in) {
    watch(out, EPOLLOUT | EPOLLIN);
  } else {
    if (want_send) watch(out, EPOLLOUT);
    if (want_recv) watch(in, EPOLLIN);
  }
  return POLLIN;
}

void StripedLink::watch(size_t stream, uint32_t events) {
  epoll_event event{};
  event.events = events;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, streams_[stream].fd(), &event) != 0) {
    throw Error(ErrorCode::kInternal, system_message("epoll_ctl", errno), peer());
  }
  watched_.push_back(stream);
}

// A stream that is not waited for is not watched either: its end would be reported for ever.
void StripedLink::wake_up() {
  for (const size_t stream : watched_) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, streams_[stream].fd(), nullptr);
  }
  watched_.clear();
}

void StripedLink::check_answers(uint64_t now_ns) {
  for (Socket& stream : streams_) stream.check_answers(now_ns);
}

size_t StripedLink::undelivered_bytes() const {
  size_t bytes = 0;
  for (const Socket& stream : streams_) bytes += stream.undelivered_bytes();
  return bytes;
}

}  // namespace

std::unique_ptr<Link> make_striped_link(std::vector<Socket> streams) {
  return std::make_unique<StripedLink>(std::move(streams));
}

}  // namespace hvdtune
