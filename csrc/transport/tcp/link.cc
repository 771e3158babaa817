#include "transport/tcp/link.h"

#include <poll.h>

#include <utility>

namespace hvdtune {
namespace {

class TcpLink final : public Link {
 public:
  explicit TcpLink(Socket socket) : socket_(std::move(socket)) {}

  size_t try_send(const void* data, size_t bytes) override { return socket_.try_send(data, bytes); }
  size_t try_recv(void* data, size_t bytes) override { return socket_.try_recv(data, bytes); }
  int fd() const override { return socket_.fd(); }
  short sleep_events(bool want_send, bool want_recv) override {
    return static_cast<short>((want_send ? POLLOUT : 0) | (want_recv ? POLLIN : 0));
  }
  void wake_up() override {}
  void check_answers(uint64_t now_ns) override { socket_.check_answers(now_ns); }
  size_t undelivered_bytes() const override { return socket_.undelivered_bytes(); }
  int peer() const override { return socket_.peer(); }

 private:
  Socket socket_;
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(Socket socket) {
  return std::make_unique<TcpLink>(std::move(socket));
}

}  // namespace hvdtune
