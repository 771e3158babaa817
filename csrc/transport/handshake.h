// Who is at the other end of a socket, proved before any other byte is read.
//
//   dialer -> acceptor   hello: magic u32, version u8, purpose u8, stream u16, from i32, to i32,
//                               generation u32, dialer's nonce [32]
//   acceptor -> dialer   acceptor's nonce [32]
//   dialer -> acceptor   HMAC(key, "hvdtune dialer"   | hello | acceptor's nonce)
//   acceptor -> dialer   HMAC(key, "hvdtune acceptor" | hello | acceptor's nonce)
//
// Little endian. The dialer proves first, so one without the key gets a random number and a closed
// socket. Both ends then hold the session key HMAC(key, "hvdtune session" | hello | nonce).
#pragma once

#include <poll.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/status.h"
#include "base/stop.h"
#include "transport/socket.h"

namespace hvdtune {

enum class Purpose : uint8_t { kStore = 1, kData = 2, kControl = 3, kHealth = 4 };

// The rendezvous server's place in Greeting::to and Channel::peer.
inline constexpr int kStoreRank = -1;

// Identifies a connection; both ends must name the same.
struct ConnectionId {
  Purpose purpose;
  int from;
  int to;
  uint32_t generation;
  int stream = 0;  // which of a link's connections
};

// An authenticated connection. The session key is fresh for each.
struct SecureChannel {
  Socket socket;
  Key session;
  int peer = -1;
};

using Hello = std::array<uint8_t, 52>;
using Nonce = std::array<uint8_t, 32>;

// The other end hangs up on the proof of the dialer's key, again and again.
class KeyRefused : public Error {
 public:
  using Error::Error;
};

// The dialing side, step by step.
// Thread rule: one thread.
class Dialer {
 public:
  Dialer(std::string address, uint16_t port, const ConnectionId& connection_id, const Key& key);

  const ConnectionId& connection_id() const { return connection_id_; }
  pollfd poll_entry() const;
  // Goes as far as it can without waiting; true once the channel stands. Throws
  // Error(kRendezvous, ..., connection_id().to) when nobody listens there, when the other end hangs
  // up again and again (KeyRefused as it says) or does not prove that it has the key.
  bool advance();
  // REQUIRES: advance() returned true.
  SecureChannel take();

 private:
  enum class DialStep : uint8_t { kStart, kConnect, kHello, kNonce, kProof, kAnswer, kDone };
  bool step();

  std::string address_;
  uint16_t port_;
  ConnectionId connection_id_;
  Key key_;
  DialStep step_ = DialStep::kStart;
  int hung_up_ = 0;
  size_t moved_ = 0;
  Hello hello_{};
  Nonce nonce_{};
  Digest proof_{};
  Digest answer_{};
  Socket socket_;
};

// Dials and waits. `connection_id.to` becomes the channel's peer. Error(kTimeout),
// Error(kShutdown), and those of Dialer::advance().
SecureChannel dial(const std::string& address, uint16_t port, const ConnectionId& connection_id,
                   const Key& key, Deadline deadline, const StopSignal& stop);

struct Accepted {
  Purpose purpose;
  int stream;
  SecureChannel channel;
};

// The accepting side: many handshakes at once, none waits for another. A connection that fails its
// handshake, or takes more than 5 s, is closed without a word; at most 64 are open half way. When
// there are more, those that have had a fair chance make room, so strangers can delay a rank but
// not keep it out; a dialer that had to make room comes again.
// Thread rule: one thread.
class Acceptor {
 public:
  // Accepts greetings to `self` of this generation only. The listener must outlive the acceptor.
  Acceptor(Listener& listener, const Key& key, int self, uint32_t generation);

  // Adds what to wait for.
  void add_to(std::vector<pollfd>& polls) const;
  // When to call advance() even if poll(2) reports nothing.
  Deadline next_expiry() const;
  // Goes as far as it can without waiting; returns the channels that now stand.
  std::vector<Accepted> advance();
  // The address of who last greeted rightly and did not prove that it has the key, "" for none.
  const std::string& unproved() const { return unproved_; }

 private:
  enum class AcceptStep : uint8_t { kHello, kNonce, kProof, kAnswer };
  struct HalfOpen {
    Socket socket;
    uint64_t since_ns = 0;
    AcceptStep step = AcceptStep::kHello;
    size_t moved = 0;
    Hello hello{};
    Nonce nonce{};
    Digest proof{};
    Digest answer{};
    ConnectionId connection_id{};
  };
  enum class Outcome : uint8_t { kWaiting, kStands, kRefused };

  bool accept_new(uint64_t now);
  bool make_room(uint64_t now);
  static uint64_t fair_chance_ns(const HalfOpen& one);
  Outcome advance_one(HalfOpen& one);
  bool hello_is_for_me(HalfOpen& one) const;

  Listener& listener_;
  Key key_;
  int self_;
  uint32_t generation_;
  std::vector<HalfOpen> half_open_;
  std::string unproved_;
};

}  // namespace hvdtune
