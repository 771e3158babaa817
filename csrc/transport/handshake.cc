#include "transport/handshake.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "base/status.h"
#include "transport/bytes.h"
#include "transport/endpoint.h"

namespace hvdtune {
namespace {

constexpr uint32_t kHandshakeMagic = 0x54445648;  // "HVDT"
constexpr uint8_t kHandshakeVersion = 1;
constexpr size_t kNonceAt = 20;
constexpr size_t kMostHalfOpen = 64;
constexpr uint64_t kHandshakeNs = 5'000'000'000;
// How long each may take when all places are taken. A dialer's hello is on its way before it is
// accepted; its proof waits for its thread to run.
constexpr uint64_t kHelloNs = 250'000'000;
constexpr uint64_t kProofNs = 1'000'000'000;
constexpr int kMostHangUps = 5;

Hello make_hello(const ConnectionId& connection_id) {
  Hello hello{};
  store_le(kHandshakeMagic, hello.data());
  hello[4] = kHandshakeVersion;
  hello[5] = static_cast<uint8_t>(connection_id.purpose);
  store_le(static_cast<uint16_t>(connection_id.stream), hello.data() + 6);
  store_le<int32_t>(connection_id.from, hello.data() + 8);
  store_le<int32_t>(connection_id.to, hello.data() + 12);
  store_le(connection_id.generation, hello.data() + 16);
  random_bytes(std::span(hello).subspan(kNonceAt));
  return hello;
}

ConnectionId greeting_of(const Hello& hello) {
  return {static_cast<Purpose>(hello[5]), load_le<int32_t>(hello.data() + 8),
          load_le<int32_t>(hello.data() + 12), load_le<uint32_t>(hello.data() + 16),
          load_le<uint16_t>(hello.data() + 6)};
}

Digest prove(const Key& key, std::string_view label, const Hello& hello, const Nonce& nonce) {
  std::array<uint8_t, sizeof(Hello) + sizeof(Nonce)> both;
  std::ranges::copy(hello, both.begin());
  std::ranges::copy(nonce, both.begin() + hello.size());
  return Hmac(key).sign({reinterpret_cast<const uint8_t*>(label.data()), label.size()}, both);
}

// The spaces make no label a prefix of another.
constexpr std::string_view kDialer = "hvdtune dialer  ";
constexpr std::string_view kAcceptor = "hvdtune acceptor";
constexpr std::string_view kSession = "hvdtune session ";

bool send_rest(Socket& socket, Bytes bytes, size_t& moved) {
  moved += socket.try_send(bytes.data() + moved, bytes.size() - moved);
  return moved == bytes.size();
}

bool recv_rest(Socket& socket, std::span<uint8_t> bytes, size_t& moved) {
  moved += socket.try_recv(bytes.data() + moved, bytes.size() - moved);
  return moved == bytes.size();
}

std::string name_of(int rank) {
  return rank == kStoreRank ? "the rendezvous server" : "rank " + std::to_string(rank);
}

}  // namespace

Dialer::Dialer(std::string address, uint16_t port, const ConnectionId& connection_id,
               const Key& key)
    : address_(std::move(address)), port_(port), connection_id_(connection_id), key_(key) {}

pollfd Dialer::poll_entry() const {
  const bool sends =
      step_ == DialStep::kConnect || step_ == DialStep::kHello || step_ == DialStep::kProof;
  return {socket_.fd(), static_cast<short>(sends ? POLLOUT : POLLIN), 0};
}

bool Dialer::advance() {
  try {
    while (step_ != DialStep::kDone && step()) {
      step_ = static_cast<DialStep>(static_cast<uint8_t>(step_) + 1);
      moved_ = 0;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUsage) throw;
    const bool hung_up = error.code() == ErrorCode::kRankLost;
    // Perhaps strangers had taken all places and this one had to make room.
    if (hung_up && ++hung_up_ < kMostHangUps) {
      step_ = DialStep::kStart;
      moved_ = 0;
      return advance();
    }
    const std::string no_connection = "no connection to " + name_of(connection_id_.to) + ": ";
    const std::string where = endpoint_name(address_, port_);
    if (hung_up && step_ == DialStep::kAnswer) {
      throw KeyRefused(ErrorCode::kRendezvous,
                       no_connection + where +
                           " has a different key than this process, or belongs to another job",
                       connection_id_.to);
    }
    throw Error(
        ErrorCode::kRendezvous,
        no_connection +
            (hung_up ? where + " closed the connection; it has ended, or belongs to another job"
                     : error.what()),
        connection_id_.to);
  }
  return step_ == DialStep::kDone;
}

bool Dialer::step() {
  switch (step_) {
    case DialStep::kStart:
      hello_ = make_hello(connection_id_);
      socket_ = start_connect(address_, port_);
      return true;
    case DialStep::kConnect: {
      pollfd entry = poll_entry();
      if (poll(&entry, 1, 0) <= 0) return false;
      finish_connect(socket_, address_, port_);
      return true;
    }
    case DialStep::kHello:
      FAILPOINT_ON("handshake/dial_hello", socket_.fd());
      return send_rest(socket_, hello_, moved_);
    case DialStep::kNonce:
      if (!recv_rest(socket_, nonce_, moved_)) return false;
      FAILPOINT_ON("handshake/dial_nonce", socket_.fd());
      proof_ = prove(key_, kDialer, hello_, nonce_);
      return true;
    case DialStep::kProof:
      FAILPOINT_ON("handshake/dial_proof", socket_.fd());
      return send_rest(socket_, proof_, moved_);
    case DialStep::kAnswer:
      if (!recv_rest(socket_, answer_, moved_)) return false;
      FAILPOINT_ON("handshake/dial_answer", socket_.fd());
      if (!digests_equal(answer_, prove(key_, kAcceptor, hello_, nonce_))) {
        throw Error(ErrorCode::kRendezvous,
                    endpoint_name(address_, port_) + " does not have this job's key");
      }
      return true;
    case DialStep::kDone:
      break;
  }
  return false;
}

SecureChannel Dialer::take() {
  socket_.set_peer(connection_id_.to);
  return {std::move(socket_), prove(key_, kSession, hello_, nonce_), connection_id_.to};
}

SecureChannel dial(const std::string& address, uint16_t port, const ConnectionId& connection_id,
                   const Key& key, Deadline deadline, const StopSignal& stop) {
  Dialer dialer(address, port, connection_id, key);
  const std::string what =
      "connect to " + name_of(connection_id.to) + " at " + endpoint_name(address, port);
  while (!dialer.advance()) {
    const pollfd entry = dialer.poll_entry();
    wait_ready(entry.fd, entry.events, deadline, stop, what.c_str());
  }
  return dialer.take();
}

Acceptor::Acceptor(Listener& listener, const Key& key, int self, uint32_t generation)
    : listener_(listener), key_(key), self_(self), generation_(generation) {}

void Acceptor::add_to(std::vector<pollfd>& polls) const {
  const bool full = half_open_.size() >= kMostHalfOpen;
  if (!full) polls.push_back({listener_.fd(), POLLIN, 0});
  for (const HalfOpen& one : half_open_) {
    const bool sends = one.step == AcceptStep::kNonce || one.step == AcceptStep::kAnswer;
    polls.push_back({one.socket.fd(), static_cast<short>(sends ? POLLOUT : POLLIN), 0});
  }
}

Deadline Acceptor::next_expiry() const {
  if (half_open_.empty()) return Deadline::never();
  const bool full = half_open_.size() >= kMostHalfOpen;
  uint64_t soonest = UINT64_MAX;
  for (const HalfOpen& one : half_open_) {
    soonest = std::min(soonest, one.since_ns + (full ? fair_chance_ns(one) : kHandshakeNs));
  }
  return Deadline::at(soonest);
}

std::vector<Accepted> Acceptor::advance() {
  std::vector<Accepted> standing;
  const uint64_t now = now_ns();
  while (accept_new(now)) continue;
  std::erase_if(half_open_, [&](HalfOpen& one) {
    const Outcome outcome = advance_one(one);
    if (outcome == Outcome::kStands) {
      const int from = one.connection_id.from;
      one.socket.set_peer(from);
      const Key session = prove(key_, kSession, one.hello, one.nonce);
      standing.push_back({one.connection_id.purpose,
                          one.connection_id.stream,
                          {std::move(one.socket), session, from}});
    }
    return outcome != Outcome::kWaiting || now >= one.since_ns + kHandshakeNs;
  });
  return standing;
}

// True if there was one.
bool Acceptor::accept_new(uint64_t now) {
  if (half_open_.size() >= kMostHalfOpen && !make_room(now)) return false;
  std::optional<Socket> socket = listener_.try_accept();
  if (!socket) return false;
  half_open_.emplace_back();
  half_open_.back().socket = std::move(*socket);
  half_open_.back().since_ns = now;
  return true;
}

uint64_t Acceptor::fair_chance_ns(const HalfOpen& one) {
  return one.step == AcceptStep::kHello ? kHelloNs : kProofNs;
}

bool Acceptor::make_room(uint64_t now) {
  return std::erase_if(half_open_, [&](const HalfOpen& one) {
           return now >= one.since_ns + fair_chance_ns(one);
         }) > 0;
}

Acceptor::Outcome Acceptor::advance_one(HalfOpen& one) {
  const auto next = [&](AcceptStep step) {
    one.step = step;
    one.moved = 0;
  };
  try {
    if (one.step == AcceptStep::kHello) {
      if (!recv_rest(one.socket, one.hello, one.moved)) return Outcome::kWaiting;
      if (!hello_is_for_me(one)) return Outcome::kRefused;
      FAILPOINT_ON("handshake/take_hello", one.socket.fd());
      random_bytes(one.nonce);
      next(AcceptStep::kNonce);
    }
    if (one.step == AcceptStep::kNonce) {
      if (!send_rest(one.socket, one.nonce, one.moved)) return Outcome::kWaiting;
      FAILPOINT_ON("handshake/sent_nonce", one.socket.fd());
      next(AcceptStep::kProof);
    }
    if (one.step == AcceptStep::kProof) {
      if (!recv_rest(one.socket, one.proof, one.moved)) return Outcome::kWaiting;
      if (!digests_equal(one.proof, prove(key_, kDialer, one.hello, one.nonce))) {
        unproved_ = one.socket.peer_address();
        return Outcome::kRefused;
      }
      FAILPOINT_ON("handshake/take_proof", one.socket.fd());
      one.answer = prove(key_, kAcceptor, one.hello, one.nonce);
      next(AcceptStep::kAnswer);
    }
    if (!send_rest(one.socket, one.answer, one.moved)) return Outcome::kWaiting;
    FAILPOINT_ON("handshake/stands", one.socket.fd());
    return Outcome::kStands;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kRankLost) throw;
    return Outcome::kRefused;
  }
}

bool Acceptor::hello_is_for_me(HalfOpen& one) const {
  one.connection_id = greeting_of(one.hello);
  const uint8_t purpose = one.hello[5];
  return load_le<uint32_t>(one.hello.data()) == kHandshakeMagic &&
         one.hello[4] == kHandshakeVersion && purpose >= static_cast<uint8_t>(Purpose::kStore) &&
         purpose <= static_cast<uint8_t>(Purpose::kHealth) && one.connection_id.from >= 0 &&
         one.connection_id.to == self_ && one.connection_id.generation == generation_;
}

}  // namespace hvdtune
