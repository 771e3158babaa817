// What every link must do. A member defines make_link_pair() and includes this file.
#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "check.h"
#include "transport/blocking_socket.h"
#include "transport/exchange.h"
#include "transport/link.h"
#include "transport/socket.h"
#include "transport/soon.h"

namespace hvdtune::testing {

// The ends of one link: the first is held by rank 3 (its peer is 5), the second by rank 5.
using LinkPair = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;
LinkPair make_link_pair();

// Two ends of a TCP connection over the loopback interface, held by ranks 3 and 5.
inline std::pair<Socket, Socket> make_socket_pair() {
  const StopSignal stop;
  const Deadline deadline = Deadline::in(std::chrono::seconds(10));
  Listener listener("127.0.0.1");
  Socket first = connect_to("127.0.0.1", listener.port(), deadline, stop);
  wait_ready(listener.fd(), 1, deadline, stop, "accept");
  Socket second = std::move(listener.try_accept().value());
  first.set_peer(5);
  second.set_peer(3);
  return {std::move(first), std::move(second)};
}

inline void exchange_one(Transfer transfer, const StopSignal& stop, int spins = 0) {
  exchange({&transfer, 1}, soon(), stop, spins);
}

inline std::vector<uint32_t> numbers(size_t bytes, uint32_t first) {
  std::vector<uint32_t> values(bytes / sizeof(uint32_t));
  std::iota(values.begin(), values.end(), first);
  return values;
}

inline void ping_pong(int rounds, int spins) {
  const auto [low, high] = make_link_pair();
  const StopSignal stop;
  std::jthread other([&, link = high.get()] {
    for (int i = 0; i < rounds; ++i) {
      int value = -1;
      exchange_one({.link = link, .recv = &value, .recv_bytes = sizeof value}, stop, spins);
      exchange_one({.link = link, .send = &value, .send_bytes = sizeof value}, stop, spins);
    }
  });
  for (int i = 0; i < rounds; ++i) {
    int echo = -1;
    exchange_one({.link = low.get(), .send = &i, .send_bytes = sizeof i}, stop, spins);
    exchange_one({.link = low.get(), .recv = &echo, .recv_bytes = sizeof echo}, stop, spins);
    CHECK_EQ(echo, i);
  }
}

TEST(a_message_comes_back_when_both_ends_sleep) { ping_pong(3000, 0); }

TEST(a_message_comes_back_when_both_ends_spin) { ping_pong(3000, 200); }

TEST(ten_megabytes_cross_each_other) {
  const auto [low, high] = make_link_pair();
  const StopSignal stop;
  constexpr size_t kBytes = size_t{10} << 20;
  const std::vector<uint32_t> from_low = numbers(kBytes, 1);
  const std::vector<uint32_t> from_high = numbers(kBytes, 99);
  std::vector<uint32_t> at_low(from_low.size());
  std::vector<uint32_t> at_high(from_low.size());
  std::jthread other([&, link = high.get()] {
    exchange_one({link, from_high.data(), kBytes, at_high.data(), kBytes}, stop);
  });
  exchange_one({low.get(), from_low.data(), kBytes, at_low.data(), kBytes}, stop);
  other.join();
  CHECK(at_low == from_high);
  CHECK(at_high == from_low);
}

TEST(odd_sizes_arrive_in_order) {
  const auto [low, high] = make_link_pair();
  const StopSignal stop;
  const std::vector<uint32_t> sent = numbers(size_t{3} << 20, 7);
  std::vector<uint32_t> received(sent.size());
  const auto* from = reinterpret_cast<const uint8_t*>(sent.data());
  auto* to = reinterpret_cast<uint8_t*>(received.data());
  const size_t bytes = sent.size() * sizeof(uint32_t);
  const auto in_steps = [&](size_t step, auto&& move) {
    for (size_t at = 0; at < bytes; at += step) move(at, std::min(step, bytes - at));
  };
  std::jthread other([&, link = high.get()] {
    in_steps(4099, [&](size_t at, size_t count) {
      exchange_one({.link = link, .recv = to + at, .recv_bytes = count}, stop);
    });
  });
  in_steps(70001, [&, link = low.get()](size_t at, size_t count) {
    exchange_one({.link = link, .send = from + at, .send_bytes = count}, stop);
  });
  other.join();
  CHECK(sent == received);
}

TEST(both_directions_may_be_two_transfers) {
  const auto [low, high] = make_link_pair();
  const StopSignal stop;
  constexpr size_t kBytes = size_t{1} << 20;
  const std::vector<uint32_t> sent = numbers(kBytes, 1);
  std::vector<uint32_t> at_low(sent.size());
  std::vector<uint32_t> at_high(sent.size());
  const auto both = [&](Link* link, std::vector<uint32_t>& received) {
    Transfer transfers[] = {{.link = link, .send = sent.data(), .send_bytes = kBytes},
                            {.link = link, .recv = received.data(), .recv_bytes = kBytes}};
    exchange(transfers, soon(), stop, 0);
  };
  std::jthread other([&, link = high.get()] { both(link, at_high); });
  both(low.get(), at_low);
  other.join();
  CHECK(at_low == sent);
  CHECK(at_high == sent);
}

TEST(an_empty_link_gives_nothing_and_does_not_wait) {
  const auto [low, high] = make_link_pair();
  uint8_t byte = 0;
  CHECK_EQ(low->try_recv(&byte, 1), 0U);
  CHECK_EQ(high->try_recv(&byte, 1), 0U);
}

TEST(a_full_link_takes_nothing_and_does_not_wait) {
  const auto [low, high] = make_link_pair();
  const std::vector<uint8_t> data(size_t{1} << 20);
  size_t total = 0;
  // Ends by itself: a link holds a bounded number of bytes.
  for (size_t sent = 1; sent > 0; total += sent) sent = low->try_send(data.data(), data.size());
  CHECK(total > 0);
  CHECK_EQ(low->try_send(data.data(), data.size()), 0U);
}

TEST(a_peer_that_closes_is_named) {
  auto [low, high] = make_link_pair();
  const StopSignal stop;
  std::jthread other([link = std::move(high)]() mutable { link.reset(); });
  uint8_t byte = 0;
  try {
    exchange_one({.link = low.get(), .recv = &byte, .recv_bytes = 1}, stop);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), 5);
  }
}

TEST(a_sender_sees_that_its_peer_closed) {
  auto [low, high] = make_link_pair();
  const StopSignal stop;
  std::jthread other([link = std::move(high)]() mutable {
    uint8_t byte = 0;
    const StopSignal never;
    exchange_one({.link = link.get(), .recv = &byte, .recv_bytes = 1}, never);
    link.reset();
  });
  const std::vector<uint8_t> data(size_t{64} << 20);
  CHECK_THROWS(
      ErrorCode::kRankLost,
      exchange_one({.link = low.get(), .send = data.data(), .send_bytes = data.size()}, stop));
}

TEST(what_was_sent_before_closing_still_arrives) {
  auto [low, high] = make_link_pair();
  const StopSignal stop;
  const std::vector<uint32_t> sent = numbers(100'000, 3);
  exchange_one({.link = high.get(), .send = sent.data(), .send_bytes = 100'000}, stop);
  high.reset();
  std::vector<uint32_t> received(sent.size());
  exchange_one({.link = low.get(), .recv = received.data(), .recv_bytes = 100'000}, stop);
  CHECK(received == sent);
  uint8_t byte = 0;
  CHECK_THROWS(ErrorCode::kRankLost,
               exchange_one({.link = low.get(), .recv = &byte, .recv_bytes = 1}, stop));
}

TEST(a_raised_stop_signal_ends_the_wait) {
  const auto [low, high] = make_link_pair();
  StopSignal stop;
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stop.raise();
  });
  uint8_t byte = 0;
  CHECK_THROWS(ErrorCode::kShutdown,
               exchange_one({.link = low.get(), .recv = &byte, .recv_bytes = 1}, stop));
}

TEST(a_deadline_names_the_rank_that_is_behind) {
  const auto [low, high] = make_link_pair();
  const StopSignal stop;
  uint8_t byte = 0;
  Transfer transfer{.link = low.get(), .recv = &byte, .recv_bytes = 1};
  try {
    exchange({&transfer, 1}, Deadline::in(std::chrono::milliseconds(20)), stop, 0);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kTimeout);
    CHECK_EQ(error.rank(), 5);
  }
}

TEST(a_waiting_exchange_costs_no_processor_time) {
  const auto [low, high] = make_link_pair();
  const StopSignal stop;
  const auto used_ms = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000 + time.tv_nsec / 1'000'000;
  };
  const auto before = used_ms();
  uint8_t byte = 0;
  Transfer transfer{.link = low.get(), .recv = &byte, .recv_bytes = 1};
  CHECK_THROWS(ErrorCode::kTimeout,
               exchange({&transfer, 1}, Deadline::in(std::chrono::seconds(1)), stop, 1000));
  CHECK(used_ms() - before < 200);
}

}  // namespace hvdtune::testing
