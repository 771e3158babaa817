#include "transport/exchange.h"

#include <cerrno>
#include <string>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/status.h"
#include "transport/backoff.h"

namespace hvdtune {
namespace {

// How often a waiting exchange asks whether its peers' machines still answer.
constexpr int kCheckMs = 100;

bool wants_send(const Transfer& transfer) { return transfer.sent < transfer.send_bytes; }
bool wants_recv(const Transfer& transfer) { return transfer.received < transfer.recv_bytes; }

[[noreturn]] void fail_timeout(std::span<const Transfer> transfers) {
  for (const Transfer& transfer : transfers) {
    if (!wants_send(transfer) && !wants_recv(transfer)) continue;
    const int rank = transfer.link->peer();
    throw Error(ErrorCode::kTimeout,
                "timed out waiting for rank " + std::to_string(rank) + ": sent " +
                    std::to_string(transfer.sent) + " of " + std::to_string(transfer.send_bytes) +
                    " bytes, received " + std::to_string(transfer.received) + " of " +
                    std::to_string(transfer.recv_bytes),
                rank);
  }
  throw Error(ErrorCode::kTimeout, "timed out");
}

}  // namespace

Pass move_once(std::span<Transfer> transfers) {
  bool moved = false;
  bool done = true;
  for (Transfer& transfer : transfers) {
    if (wants_send(transfer)) {
      const size_t bytes =
          transfer.link->try_send(static_cast<const uint8_t*>(transfer.send) + transfer.sent,
                                  transfer.send_bytes - transfer.sent);
      transfer.sent += bytes;
      moved |= bytes > 0;
    }
    if (wants_recv(transfer)) {
      const size_t bytes =
          transfer.link->try_recv(static_cast<uint8_t*>(transfer.recv) + transfer.received,
                                  transfer.recv_bytes - transfer.received);
      transfer.received += bytes;
      moved |= bytes > 0;
    }
    done &= !wants_send(transfer) && !wants_recv(transfer);
  }
  if (done) return Pass::kDone;
  return moved ? Pass::kMoved : Pass::kIdle;
}

void wait_for_any(std::span<const Transfer> transfers, Deadline deadline, const StopSignal& stop,
                  std::vector<pollfd>& polls) {
  polls.assign(1, {stop.fd(), POLLIN, 0});
  bool ready = false;
  for (const Transfer& transfer : transfers) {
    if (!wants_send(transfer) && !wants_recv(transfer)) continue;
    const short events = transfer.link->sleep_events(wants_send(transfer), wants_recv(transfer));
    ready |= events == 0;
    polls.push_back({transfer.link->fd(), events, 0});
  }
  const int result = ready ? 0 : poll(polls.data(), polls.size(), deadline.poll_ms(kCheckMs));
  const int error_number = errno;
  for (const Transfer& transfer : transfers) {
    if (wants_send(transfer) || wants_recv(transfer)) transfer.link->wake_up();
  }
  if (result < 0 && error_number != EINTR) throw system_failure("poll", error_number);
  if (result != 0 || ready) return;
  const uint64_t now = now_ns();
  for (const Transfer& transfer : transfers) {
    if (wants_send(transfer) || wants_recv(transfer)) transfer.link->check_answers(now);
  }
}

void exchange(std::span<Transfer> transfers, Deadline deadline, const StopSignal& stop, int spins) {
  FAILPOINT("exchange/begin");
  for (Transfer& transfer : transfers) transfer.sent = transfer.received = 0;
  std::vector<pollfd> polls;
  int idle = 0;
  for (;;) {
    const Pass pass = move_once(transfers);
    FAILPOINT("exchange/moved");
    if (pass == Pass::kDone) return;
    if (stop.raised()) throw Error(ErrorCode::kShutdown, "stopped in the middle of an exchange");
    if (pass == Pass::kMoved) {
      idle = 0;
    } else if (deadline.passed()) {
      fail_timeout(transfers);
    } else if (idle < spins) {
      ++idle;
      cpu_pause();
    } else {
      FAILPOINT("exchange/sleep");
      wait_for_any(transfers, deadline, stop, polls);
      FAILPOINT("exchange/woken");
    }
  }
}

}  // namespace hvdtune
