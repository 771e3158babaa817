#include "runtime/user_thread_recorder.h"

#include <unistd.h>

#include <utility>

namespace hvdtune {
namespace {

constexpr uint64_t kShortestNs = 1'000;
constexpr uint64_t kLongNs = 200'000;

}  // namespace

void UserThreadRecorder::begin_wait(uint64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (now_ns - last_wait_ns_ >= kLongNs) take_own();
}

void UserThreadRecorder::end_wait(uint64_t begin_ns, uint64_t now_ns, EventKind kind) {
  if (now_ns - begin_ns < kShortestNs) return;
  const std::lock_guard lock(mutex_);
  events_.record(kind, begin_ns, now_ns, 0, 0, 0, 0);
  last_wait_ns_ = now_ns;
  if (now_ns - begin_ns >= kLongNs && marker_ == gettid()) meter_.since_last();
}

void UserThreadRecorder::span(std::string_view name, uint64_t begin_ns, uint64_t end_ns) {
  if (!enabled()) return;
  const uint32_t id = recorder_.intern(name);
  const std::lock_guard lock(mutex_);
  events_.record(EventKind::kSpan, begin_ns, end_ns, id, 0, 0, 0);
}

void UserThreadRecorder::begin_step() {
  if (!enabled()) return;
  const std::lock_guard lock(mutex_);
  if (marker_ == gettid()) return;  // the step before has just been read
  marker_ = gettid();
  meter_.since_last();
  own_ = {};
}

CpuTime UserThreadRecorder::end_step() {
  const std::lock_guard lock(mutex_);
  if (!enabled()) {
    marker_ = 0;
    return {};
  }
  take_own();
  return std::exchange(own_, {});
}

void UserThreadRecorder::take_own() {
  if (marker_ != gettid()) return;
  const auto use = meter_.since_last();
  if (!use) return;
  own_.ran_ns += use->ran_ns;
  own_.waited_ns += use->waited_ns;
}

}  // namespace hvdtune
