#pragma once

#include <chrono>

#include "base/clock.h"

namespace hvdtune::testing {

// When a test that hangs gives up.
inline Deadline soon() { return Deadline::in(std::chrono::seconds(50)); }

}  // namespace hvdtune::testing
