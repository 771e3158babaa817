// Probes another process of this host, and the far end of a connection, from outside.
#pragma once

#include <cstdint>

#include "wire/report.h"

namespace hvdtune {

// This process, as others are to know it.
ProcessIdentity own_identity();

// Returns what the kernel says about a process of this host. kUnknown when `who` cannot be seen
// from here: it did not send its identity, or lives in another pid namespace. Never mistakes a
// later process of its number for it.
ProcessState probe_process(const ProcessIdentity& who, const ProcessIdentity& self);

// Whether the host at the far end has left data unacknowledged for this long, which one whose
// process is merely stopped does not.
bool is_unacknowledged(int fd, uint64_t for_ns);

}  // namespace hvdtune
