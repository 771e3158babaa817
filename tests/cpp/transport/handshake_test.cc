#include "transport/handshake.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "check.h"
#include "transport/blocking_socket.h"
#include "transport/soon.h"

using namespace hvdtune;
using hvdtune::testing::soon;
using testing::connect_to;
using testing::recv_all;

namespace {

constexpr Key kKey = {1, 2, 3};
constexpr Key kOtherKey = {3, 2, 1};
constexpr ConnectionId kConnectionId = {Purpose::kData, 2, 1, 7};

// Rank 1 of generation 7, accepting in a thread of its own until it goes out of scope.
class Door {
 public:
  Door() : listener_("127.0.0.1"), thread_([this] { serve(); }) {}
  ~Door() { stop_.raise(); }

  uint16_t port() const { return listener_.port(); }
  // The next channel that stands.
  Accepted next() { return accepted_.get_future().get(); }

 private:
  void serve() {
    Acceptor acceptor(listener_, kKey, 1, 7);
    while (!stop_.raised()) {
      for (Accepted& one : acceptor.advance()) accepted_.set_value(std::move(one));
      std::vector<pollfd> polls = {{stop_.fd(), POLLIN, 0}};
      acceptor.add_to(polls);
      poll(polls.data(), polls.size(), acceptor.next_expiry().poll_ms());
    }
  }

  Listener listener_;
  StopSignal stop_;
  std::promise<Accepted> accepted_;
  std::jthread thread_;
};

SecureChannel dial_door(const Door& door, const ConnectionId& connection_id = kConnectionId,
                        const Key& key = kKey) {
  const StopSignal stop;
  return dial("127.0.0.1", door.port(), connection_id, key, soon(), stop);
}

Socket connect_door(const Door& door) {
  const StopSignal stop;
  return connect_to("127.0.0.1", door.port(), soon(), stop);
}

// All bytes until the door closes the connection.
std::vector<uint8_t> read_to_end(Socket& socket) {
  const StopSignal stop;
  std::vector<uint8_t> all;
  try {
    for (;;) {
      uint8_t byte = 0;
      recv_all(socket, &byte, 1, soon(), stop);
      all.push_back(byte);
    }
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRankLost);
  }
  return all;
}

void check_works(Door& door) {
  const SecureChannel mine = dial_door(door);
  const Accepted theirs = door.next();
  CHECK(mine.session == theirs.channel.session);
}

// Copies bytes between a dialer and the door, one at a time, and keeps the dialer's.
class Tap {
 public:
  explicit Tap(const Door& door)
      : listener_("127.0.0.1"), thread_([this, port = door.port()] { copy(port); }) {}

  uint16_t port() const { return listener_.port(); }
  std::vector<uint8_t> finish() {
    thread_.join();
    return said_;
  }

 private:
  void copy(uint16_t port) {
    const StopSignal stop;
    wait_ready(listener_.fd(), POLLIN, soon(), stop, "accept");
    Socket dialer = std::move(listener_.try_accept().value());
    Socket door = connect_to("127.0.0.1", port, soon(), stop);
    const auto pass = [&](Socket& from, Socket& to, size_t bytes, std::vector<uint8_t>* kept) {
      for (size_t i = 0; i < bytes; ++i) {
        uint8_t byte = 0;
        recv_all(from, &byte, 1, soon(), stop);
        to.send_all(&byte, 1, soon(), stop);
        if (kept != nullptr) kept->push_back(byte);
      }
    };
    pass(dialer, door, sizeof(Hello), &said_);
    pass(door, dialer, sizeof(Nonce), nullptr);
    pass(dialer, door, sizeof(Digest), &said_);
    pass(door, dialer, sizeof(Digest), nullptr);
  }

  Listener listener_;
  std::vector<uint8_t> said_;
  std::jthread thread_;
};

}  // namespace

TEST(both_ends_agree_on_peer_purpose_and_session) {
  Door door;
  const SecureChannel mine = dial_door(door);
  const Accepted theirs = door.next();
  CHECK(mine.session == theirs.channel.session);
  CHECK(theirs.purpose == Purpose::kData);
  CHECK_EQ(mine.peer, 1);
  CHECK_EQ(mine.socket.peer(), 1);
  CHECK_EQ(theirs.channel.peer, 2);
  CHECK_EQ(theirs.channel.socket.peer(), 2);
}

TEST(each_connection_has_its_own_session_key) {
  Door first;
  Door second;
  CHECK(dial_door(first).session != dial_door(second).session);
}

TEST(a_wrong_key_sees_a_random_number_and_a_closed_socket) {
  Door door;
  try {
    dial_door(door, kConnectionId, kOtherKey);
    CHECK(false);
  } catch (const KeyRefused& error) {
    CHECK(error.code() == ErrorCode::kRendezvous);
    CHECK_EQ(error.rank(), 1);
  }
  check_works(door);
}

TEST(greetings_to_another_rank_or_generation_are_refused) {
  Door door;
  CHECK_THROWS(ErrorCode::kRendezvous, dial_door(door, {Purpose::kData, 2, 3, 7}));
  CHECK_THROWS(ErrorCode::kRendezvous, dial_door(door, {Purpose::kData, 2, 1, 8}));
  CHECK_THROWS(ErrorCode::kRendezvous, dial_door(door, {Purpose::kData, -2, 1, 7}));
  CHECK_THROWS(ErrorCode::kRendezvous, dial_door(door, {static_cast<Purpose>(0), 2, 1, 7}));
  CHECK_THROWS(ErrorCode::kRendezvous, dial_door(door, {static_cast<Purpose>(9), 2, 1, 7}));
  check_works(door);
}

TEST(garbage_gets_a_closed_socket_and_no_answer) {
  Door door;
  const StopSignal stop;
  Socket stranger = connect_door(door);
  const std::vector<uint8_t> garbage(200, 0x5a);
  stranger.send_all(garbage.data(), garbage.size(), soon(), stop);
  CHECK_EQ(read_to_end(stranger).size(), 0U);
  check_works(door);
}

TEST(silent_strangers_delay_nobody) {
  Door door;
  std::vector<Socket> strangers;
  for (int i = 0; i < 20; ++i) strangers.push_back(connect_door(door));
  check_works(door);
}

TEST(more_silent_strangers_than_places_make_room) {
  Door door;
  std::vector<Socket> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connect_door(door));
  check_works(door);
}

TEST(strangers_that_stop_half_way_make_room) {
  Door door;
  const StopSignal stop;
  std::vector<Socket> strangers;
  Hello hello{};
  std::memcpy(hello.data(), "HVDT\1\2\0\0\2\0\0\0\1\0\0\0\7\0\0\0", 20);
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(connect_door(door));
    strangers.back().send_all(hello.data(), i % 2 == 0 ? hello.size() : 1, soon(), stop);
  }
  check_works(door);
}

TEST(a_dialer_that_had_to_make_room_comes_again) {
  Listener listener("127.0.0.1");
  const StopSignal stop;
  std::jthread server([&] {
    for (int turned_away = 0; turned_away < 3; ++turned_away) {
      wait_ready(listener.fd(), POLLIN, soon(), stop, "accept");
      Socket socket = std::move(listener.try_accept().value());
      Hello hello{};
      if (turned_away > 0) recv_all(socket, hello.data(), hello.size(), soon(), stop);
      if (turned_away > 1) socket.send_all(hello.data(), sizeof(Nonce), soon(), stop);
    }
    Acceptor acceptor(listener, kKey, 1, 7);
    while (acceptor.advance().empty()) {
      std::vector<pollfd> polls;
      acceptor.add_to(polls);
      poll(polls.data(), polls.size(), -1);
    }
  });
  CHECK_EQ(dial("127.0.0.1", listener.port(), kConnectionId, kKey, soon(), stop).peer, 1);
}

TEST(a_handshake_may_arrive_byte_by_byte) {
  Door door;
  Tap tap(door);
  const StopSignal stop;
  const SecureChannel mine = dial("127.0.0.1", tap.port(), kConnectionId, kKey, soon(), stop);
  CHECK(mine.session == door.next().channel.session);
}

TEST(replayed_bytes_get_a_closed_socket) {
  Door door;
  Tap tap(door);
  const StopSignal stop;
  dial("127.0.0.1", tap.port(), kConnectionId, kKey, soon(), stop);
  const std::vector<uint8_t> said = tap.finish();
  Socket replay = connect_door(door);
  replay.send_all(said.data(), said.size(), soon(), stop);
  CHECK_EQ(read_to_end(replay).size(), sizeof(Nonce));
}

TEST(a_dialer_does_not_believe_one_without_the_key) {
  Listener listener("127.0.0.1");
  const StopSignal stop;
  std::jthread impostor([&] {
    wait_ready(listener.fd(), POLLIN, soon(), stop, "accept");
    Socket socket = std::move(listener.try_accept().value());
    std::array<uint8_t, sizeof(Hello) + sizeof(Digest)> read;
    const Nonce nonce{};
    const Digest answer{};
    recv_all(socket, read.data(), sizeof(Hello), soon(), stop);
    socket.send_all(nonce.data(), nonce.size(), soon(), stop);
    recv_all(socket, read.data(), sizeof(Digest), soon(), stop);
    socket.send_all(answer.data(), answer.size(), soon(), stop);
  });
  try {
    dial("127.0.0.1", listener.port(), kConnectionId, kKey, soon(), stop);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRendezvous);
    CHECK_EQ(error.rank(), 1);
  }
}

TEST(a_port_where_nobody_listens_is_named_with_the_rank) {
  std::optional<Listener> listener(std::in_place, "127.0.0.1");
  const uint16_t port = listener->port();
  listener.reset();
  const StopSignal stop;
  try {
    dial("127.0.0.1", port, kConnectionId, kKey, soon(), stop);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRendezvous);
    CHECK_EQ(error.rank(), 1);
    CHECK(std::strstr(error.what(), "rank 1") != nullptr);
    CHECK(std::strstr(error.what(), std::to_string(port).c_str()) != nullptr);
  }
}

TEST(one_who_never_answers_is_given_up_at_the_deadline) {
  Listener listener("127.0.0.1");
  const StopSignal stop;
  CHECK_THROWS(ErrorCode::kTimeout, dial("127.0.0.1", listener.port(), kConnectionId, kKey,
                                         Deadline::in(std::chrono::milliseconds(50)), stop));
}

TEST(a_name_is_not_an_address) {
  const StopSignal stop;
  CHECK_THROWS(ErrorCode::kUsage, connect_to("localhost", 1, soon(), stop));
}
