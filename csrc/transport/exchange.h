// The waiting loop of all collectives that travel over links.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "transport/link.h"

namespace hvdtune {

// What goes out to and comes in from one peer. Either side may be empty. Memory is not owned.
struct Transfer {
  Link* link = nullptr;
  const void* send = nullptr;
  size_t send_bytes = 0;
  void* recv = nullptr;
  size_t recv_bytes = 0;
  // Progress, kept by exchange(): set to 0 when it starts.
  size_t sent = 0;
  size_t received = 0;
};

// Completes all transfers, in parallel and in both directions, so that no order of sizes among the
// ranks can deadlock. Sleeps in poll(2) after `spins` rounds without progress; pass 0 when the
// ranks outnumber the cores.
//
// Throws Error(kRankLost) naming the peer that is gone, Error(kTimeout) naming one that is behind
// when the deadline passes, Error(kShutdown) once stop is raised. After any of them the links are
// at unknown positions: the mesh must be given up.
//
// REQUIRES: a link appears at most once for each direction.
void exchange(std::span<Transfer> transfers, Deadline deadline, const StopSignal& stop, int spins);

// The two halves of exchange(), for callers that compute between them or add transfers.
enum class Pass : uint8_t { kDone, kMoved, kIdle };
// Moves what can be moved without waiting.
Pass move_once(std::span<Transfer> transfers);
// Sleeps until some link may have moved, the deadline passes or stop is raised. `polls` is memory
// that is used again.
void wait_for_any(std::span<const Transfer> transfers, Deadline deadline, const StopSignal& stop,
                  std::vector<pollfd>& polls);

}  // namespace hvdtune
