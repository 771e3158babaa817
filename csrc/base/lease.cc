#include "base/lease.h"

#include <poll.h>

#include "base/status.h"

namespace hvdtune {
namespace {

constexpr int kLookMs = 1;  // how soon it is seen that the lease is held again

}  // namespace

void RankLease::await(const StopSignal& stop) const {
  for (;;) {
    if (stop.raised()) throw Error(ErrorCode::kShutdown, "stopped");
    if (is_held()) return;
    pollfd watched = {stop.fd(), POLLIN, 0};
    poll(&watched, 1, kLookMs);
  }
}

}  // namespace hvdtune
