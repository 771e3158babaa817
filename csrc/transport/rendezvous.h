// The server side of start-up: where the ranks of a job find each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hmac.h"
#include "base/stop.h"
#include "transport/handshake.h"
#include "transport/socket.h"

namespace hvdtune {

// What a rank says about itself.
struct Member {
  std::string host;     // ranks with the same host name share memory
  std::string address;  // where its peers reach it
  uint16_t port = 0;
  int pid = 0;
  bool shared_memory = true;
};

// Waits until all ranks have registered, tells each where the others are, waits until each has
// connected to its peers and lets all go at once. Returns one channel per rank, in rank order,
// kept open as the job channels; `members`, if given, receives what the ranks said.
//
// A rank that registers twice or for another job size is refused with a text; the others go on
// waiting. Throws Error(kRendezvous) when a rank leaves or fails before all were let go, naming it,
// and when the deadline passes, naming the missing ones; the ranks still there throw the same
// text. Error(kShutdown) once stop is raised.
std::vector<Channel> form_job(Listener& listener, const Key& key, int size, uint32_t generation,
                              Deadline deadline, const StopSignal& stop,
                              std::vector<Member>* members = nullptr);

}  // namespace hvdtune
