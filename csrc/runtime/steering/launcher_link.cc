#include "runtime/steering/launcher_link.h"

#include <chrono>

#include "base/status.h"
#include "transport/backoff.h"

namespace hvdtune {
namespace {

constexpr std::chrono::nanoseconds kLauncherTimeout = std::chrono::seconds(2);

}  // namespace

void LauncherLink::disconnect() {
  if (!channel_) return;
  try {
    await_delivery([this] { return channel_->undelivered_bytes(); }, kLauncherTimeout);
  } catch (const Error& error) {
    log(LogLevel::kDebug, log_level_, rank_, error.what());
  }
  channel_.reset();
}

}  // namespace hvdtune
