// Places at which a test kills, stops or cuts off a rank. Empty unless the core is compiled with
// HVDTUNE_FAILPOINTS, which no installed build is.
//
//   FAILPOINT("cycle/announce");         a place
//   FAILPOINT_ON("socket/send", fd);     a place with a connection at hand, which `reset` resets
//
// A specification, as HVDTUNE_FAILPOINT gives it, is NAME=ACTION@HIT:PATH. At the HIT-th time that
// the place is reached (counted from 1, over all threads) the time is written to PATH and then
//
//   kill   the process kills itself with SIGKILL
//   stop   the process stops itself with SIGSTOP
//   reset  the connection at hand, or every TCP connection of the process, is reset
#pragma once

#include <string>

namespace hvdtune {

// Process-wide, as killing is; the last one armed stands. Throws Error(kUsage) for a specification
// that cannot be read, and always where the core has no failpoints.
void arm_failpoint(const std::string& specification);

#ifdef HVDTUNE_FAILPOINTS
void reach_failpoint(const char* name, int fd = -1);
#define FAILPOINT(name) ::hvdtune::reach_failpoint(name)
#define FAILPOINT_ON(name, fd) ::hvdtune::reach_failpoint(name, fd)
#else
#define FAILPOINT(name) static_cast<void>(0)
#define FAILPOINT_ON(name, fd) static_cast<void>(0)
#endif

}  // namespace hvdtune
