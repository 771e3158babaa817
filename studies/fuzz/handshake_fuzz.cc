// Both sides of the handshake against a peer that follows the protocol as far as the input lets it.
// Whoever stands must have proved that it has the key.
//
//   input := u8 side % 2, act*
//   act   := u8 what % 8, arguments as in perform()
//
// Sockets are real: closed with a reset, so that no port stays taken.
#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "script.h"
#include "transport/blocking_socket.h"
#include "transport/bytes.h"
#include "transport/handshake.h"

namespace hvdtune::fuzz {
namespace {

constexpr Key kKey = {1, 2, 3};
constexpr ConnectionId kConnectionId = {Purpose::kData, 2, 1, 7};
constexpr std::string_view kDialer = "hvdtune dialer  ";
constexpr std::string_view kAcceptor = "hvdtune acceptor";

Digest prove(std::string_view label, Bytes hello, Bytes nonce) {
  std::vector<uint8_t> all(label.begin(), label.end());
  all.insert(all.end(), hello.begin(), hello.end());
  all.insert(all.end(), nonce.begin(), nonce.end());
  return hmac_sha256(kKey, all);
}

// The end of a connection that the input speaks for.
class Stranger {
 public:
  Stranger(Socket socket, bool dials) : socket_(std::move(socket)), dials_(dials) {
    const linger reset{1, 0};
    setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }

  bool open() const { return socket_.open(); }
  void perform(Script& script) {
    const uint8_t what = script.byte() % 8;
    if (what < 2) say(right_words());
    if (what == 2) say(script.piece());
    if (what == 3) say(changed(right_words(), script));
    if (what == 4) say(Bytes(right_words()).first(script.byte() % 32));
    if (what == 5) say(Bytes(said_).first(std::min<size_t>(said_.size(), script.byte())));
    if (what == 6) hear();
    if (what == 7) socket_.close();
  }
  // That the other end may believe this one.
  bool has_proved() {
    hear();
    const size_t begin = dials_ ? sizeof(Hello) : sizeof(Nonce);
    if (said_.size() < begin + sizeof(Digest)) return false;
    return std::ranges::equal(Bytes(said_).subspan(begin, sizeof(Digest)), proof());
  }

 private:
  // What a peer with the key says next.
  std::vector<uint8_t> right_words() {
    hear();
    const size_t first = dials_ ? sizeof(Hello) : sizeof(Nonce);
    std::vector<uint8_t> words = dials_ ? hello() : std::vector<uint8_t>(sizeof(Nonce), 9);
    if (said_.size() >= first) {
      const Digest digest = proof();
      words.assign(digest.begin(), digest.end());
    }
    return words;
  }
  static std::vector<uint8_t> hello() {
    std::vector<uint8_t> hello(sizeof(Hello));
    std::ranges::copy(std::string_view("HVDT\1\2\0\0\2\0\0\0\1\0\0\0\7\0\0\0", 20), hello.begin());
    return hello;
  }
  Digest proof() const {
    const Bytes hello = Bytes(dials_ ? said_ : heard_)
                            .first(std::min(sizeof(Hello), dials_ ? said_.size() : heard_.size()));
    const std::vector<uint8_t>& source = dials_ ? heard_ : said_;
    const Bytes nonce = Bytes(source).first(std::min(sizeof(Nonce), source.size()));
    return prove(dials_ ? kDialer : kAcceptor, hello, nonce);
  }
  static std::vector<uint8_t> changed(std::vector<uint8_t> words, Script& script) {
    const size_t at = script.byte() % words.size();
    words[at] ^= script.byte();
    return words;
  }
  void say(Bytes words) {
    if (!open()) return;
    try {
      const size_t sent = socket_.try_send(words.data(), words.size());
      said_.insert(said_.end(), words.begin(), words.begin() + static_cast<ptrdiff_t>(sent));
    } catch (const Error&) {
      socket_.close();
    }
  }
  void hear() {
    uint8_t buffer[256];
    try {
      while (const size_t got = open() ? socket_.try_recv(buffer, sizeof buffer) : 0) {
        heard_.insert(heard_.end(), buffer, buffer + got);
      }
    } catch (const Error&) {
      // What was heard before it hung up still counts.
    }
  }

  Socket socket_;
  bool dials_;
  std::vector<uint8_t> said_;
  std::vector<uint8_t> heard_;
};

void attack_acceptor(Listener& listener, Script& script) {
  Acceptor acceptor(listener, kKey, kConnectionId.to, kConnectionId.generation);
  const StopSignal stop;
  std::vector<Stranger> strangers;
  for (int i = 0; i < 2; ++i) {
    strangers.emplace_back(
        testing::connect_to("127.0.0.1", listener.port(), Deadline::never(), stop), true);
  }
  size_t standing = 0;
  while (!script.ended()) {
    strangers[script.byte() % strangers.size()].perform(script);
    for (const Accepted& one : acceptor.advance()) {
      ++standing;
      require(one.channel.peer >= 0, "a rank is accepted");
    }
  }
  const auto proved = std::ranges::count_if(strangers, &Stranger::has_proved);
  require(standing <= static_cast<size_t>(proved), "only those stand who have proved it");
}

void attack_dialer(Listener& listener, Script& script) {
  Dialer dialer("127.0.0.1", listener.port(), kConnectionId, kKey);
  std::vector<Stranger> strangers;
  try {
    bool stands = false;
    while (!script.ended() && !stands) {
      stands = dialer.advance();
      if (auto socket = listener.try_accept()) strangers.emplace_back(std::move(*socket), false);
      if (!strangers.empty()) strangers.back().perform(script);
    }
    if (stands || dialer.advance()) {
      require(!strangers.empty() && strangers.back().has_proved(), "only a proof is believed");
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kRendezvous && error.rank() == kConnectionId.to,
            "the rank is named");
  }
}

}  // namespace
}  // namespace hvdtune::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvdtune::fuzz;
  static hvdtune::Listener listener("127.0.0.1");
  Script script(data, size);
  const bool dialer = script.byte() % 2 == 1;
  dialer ? attack_dialer(listener, script) : attack_acceptor(listener, script);
  while (listener.try_accept()) continue;  // what this input left behind
  return 0;
}
