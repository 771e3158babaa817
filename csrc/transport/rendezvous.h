// The server side of start-up: where the ranks of a job find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/status.h"
#include "base/stop.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace hvdtune {

// What a rank says about itself.
struct RankInfo {
  std::string host;     // ranks with the same host name share memory
  std::string address;  // where its peers reach it
  uint16_t port = 0;
  int pid = 0;
  bool shared_memory = true;
  int channels = 1;  // streams of a link to another host that it would use
};

struct FormationOptions {
  Key key{};
  int size = 1;
  uint32_t generation = 0;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);
};

// Called with what the ranks said, on the server's thread, once all have connected and before the
// first of them is let go: whatever a rank does in the job comes after it.
using AllConnected = std::function<void(std::vector<RankInfo>)>;

// For a server that outlives a start-up that failed, so that ranks which come late hear why.
struct FailedStart {
  // Raised by a launcher that sees a rank's process end before it connected, which nobody else can
  // know; `why` is written before.
  StopSignal abort;
  std::string why;
  std::function<void(const Error&)> report;  // called once a start, on the server's thread
};

// Waits until all ranks have registered, tells each where the others are, waits until each has
// connected to its peers and lets all go at once. Returns one channel per rank, in rank order,
// kept open as the job channels.
//
// A rank that registers twice or for another job size is refused with a text; the others go on
// waiting. Throws Error(kRendezvous) when a rank leaves or fails before all were let go, naming it,
// and when the time has passed, naming the missing ones; the ranks still there throw the same
// text. Time counts from the first rank that registers, and nothing is reported while there is
// none: programs may take long before they come, or never come at all. Error(kShutdown) once stop
// is raised. Once `abort` is raised, ranks that are there and those that still come are told why,
// until stop is raised.
std::vector<SecureChannel> form_job(Listener& listener, const FormationOptions& options,
                                    const StopSignal& stop, AllConnected all_connected = {},
                                    FailedStart* failed = nullptr);

}  // namespace hvdtune
