// Measures what it costs this host to move bytes and to wake threads.
#pragma once

#include "transport/host_costs.h"

namespace hvdtune {

// Takes some twenty milliseconds, for which it starts threads and holds some MiB. Each figure is
// the best of several: the machine may have other work. Copies between processes are measured on
// this process itself, for which the kernel takes the same way. What the kernel does not allow, or
// what takes too long to be measured, costs what it costs by default.
HostCosts measure_host_costs();

}  // namespace hvdtune
