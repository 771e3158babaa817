// The progress engine: whether the cycle thread or a caller that waits makes progress, and how the
// thread sleeps.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <chrono>
#include <limits>
#include <utility>

#include "base/failpoint.h"
#include "runtime/cycle_thread.h"
#include "transport/backoff.h"

namespace hvdtune {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr int kPausesPerPoll = 8;
// A caller that comes back within this time finds the way free.
constexpr uint64_t kGracePeriodNs = 300'000;
constexpr std::chrono::nanoseconds kLauncherTimeout = std::chrono::seconds(2);

// Whether this thread is making progress now, for any runtime.
thread_local bool makes_progress = false;

class ProgressScope {
 public:
  ProgressScope() { makes_progress = true; }
  ~ProgressScope() { makes_progress = false; }
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;
};

// A thread has its own rounding and flushing of subnormals; sums must not depend on the caller.
class DefaultRounding {
 public:
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  std::fenv_t before_;
};

void ppoll_until(std::vector<pollfd> fds, uint64_t until) {
  const uint64_t left = until - std::min(until, now_ns());
  const timespec limit{static_cast<time_t>(left / 1'000'000'000),
                       static_cast<long>(left % 1'000'000'000)};
  ppoll(fds.data(), fds.size(), until == kNever ? nullptr : &limit, nullptr);
}

}  // namespace

void CycleThread::work_added() {
  if (interest_.load() == Interest::kNewWork) wake_.notify();
}

void CycleThread::progress_for_caller(const std::function<bool()>& has_ended, Deadline deadline) {
  if (callers_may_progress_ && progress_in_caller(has_ended, deadline)) return;
  wake_for_callers();
}

void CycleThread::wake_for_callers() {
  // Nobody else has to answer a single rank: one step is all it takes, and sooner done than the
  // thread is woken. What is told the end of an operation may start another one here.
  if (callers_may_progress_ && size_ == 1 && !makes_progress) {
    if (progress_in_caller([this] { return !rank_waits(); },
                           Deadline::in(std::chrono::nanoseconds(kGracePeriodNs))))
      return;
  }
  if (interest_.load() != Interest::kNone) wake_.notify();
}

void CycleThread::shut_down() {
  leaving_.store(true);
  step_switch_.abandon();
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void CycleThread::run() {
  const DefaultRounding rounding;
  const ProgressScope scope;
  std::unique_lock progress_lock(progress_mutex_);
  try {
    while (!leaving_.load() && !ended_) {
      make_progress();
      const bool served = std::exchange(has_served_, false);
      const bool grace_period =
          callers_may_progress_ && !rank_waits() && (served || caller_has_progressed());
      const uint64_t until = prepare_sleep(grace_period);
      if (grace_period && until == kNever) {
        wait_grace_period(progress_lock);
      } else {
        sleep(progress_lock, until);
      }
    }
    if (!ended_) shutdown_handshake();
    ended_ = true;
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
  disconnect_launcher();
}

// Tells the launcher that the ranks may form another job, however long this runtime lives.
void CycleThread::disconnect_launcher() {
  if (!job_) return;
  try {
    await_delivery([this] { return job_->undelivered_bytes(); }, kLauncherTimeout);
  } catch (const Error& error) {
    log(LogLevel::kDebug, options_.log_level, rank_, error.what());
  }
  job_.reset();
}

// Makes progress on the caller's thread until the operation has ended; between steps the caller
// spins, then sleeps. Returns false if another thread is making progress, or once the deadline has
// passed; then the cycle thread goes on.
bool CycleThread::progress_in_caller(const std::function<bool()>& has_ended, Deadline deadline) {
  const std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  if (!progress_lock || ended_ || leaving_.load()) return false;
  if (mesh_.arena) mesh_.arena->move_apart();
  const DefaultRounding rounding;
  const ProgressScope scope;
  bool ended = false;
  try {
    for (;;) {
      interest_.store(Interest::kNone);
      wake_.drain();  // whatever it was for is done below, or notified again
      make_progress();
      ended = has_ended();
      if (ended || leaving_.load() || deadline.passed()) break;
      const uint64_t until = std::min(prepare_sleep(false), deadline.at_ns());
      if (until != 0 && !spin(until)) ppoll_until(poll_set(), until);
    }
    caller_progress_ns_.store(now_ns());
    const uint64_t until = prepare_sleep(in_grace_period_);
    // Asked after the interest was stored: whoever came to wait before has not notified.
    if (until != kNever || rank_waits() || !is_watched()) wake_.notify();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
  return ended;
}

// Whether the thread sleeps with the connections as they are now, or will look at them soon.
bool CycleThread::is_watched() const {
  const auto same = [](const pollfd& a, const pollfd& b) {
    return a.fd == b.fd && a.events == b.events;
  };
  return in_grace_period_ || std::ranges::equal(poll_set(), watched_, same);
}

CycleThread::Wake CycleThread::next_wake() const {
  Wake wake{kNever, Interest::kNone};
  if (!left_ranks_.empty()) return wake;
  const uint64_t now = now_ns();
  const Setting& setting = board_.setting();
  wake.interest = Interest::kNewWork;
  if (!unannounced_.empty() || (!is_root() && pending_requests_->has_ready())) {
    // The window collects: only its end, or a caller that waits, is worth waking for.
    wake.interest = Interest::kWaiting;
    const size_t bytes = unannounced_bytes_ + (is_root() ? 0 : pending_requests_->ready_bytes());
    wake.at_ns = due_ns({last_announce_ns_, bytes, false}, now, setting.cycle_time_ms,
                        setting.fusion_threshold_bytes);
  }
  if (can_emit()) {
    if (is_urgent()) wake.at_ns = now;
    wake.at_ns = std::min(wake.at_ns, due_ns(cycle_batch(), now, setting.cycle_time_ms,
                                             setting.fusion_threshold_bytes));
  }
  return wake;
}

// Whether somebody waits and the parent should hear of it or of what has been collected.
bool CycleThread::wait_is_news() {
  if (!rank_waits()) return false;
  if (is_root()) return !announced_waiting_ || !unannounced_.empty();
  pending_requests_->note_self(true, cycles_applied_, board_.version());
  return pending_requests_->everybody_waits() &&
         (!announced_waiting_ || !unannounced_.empty() || pending_requests_->has_ready());
}

std::vector<pollfd> CycleThread::poll_set() const {
  std::vector<pollfd> fds = {{wake_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
  tree_.add_to(fds);
  if (job_) fds.push_back(poll_entry(*job_));
  return fds;
}

// Says what is worth being woken for. Returns when to wake up by itself, 0 for at once.
uint64_t CycleThread::prepare_sleep(bool grace_period) {
  Wake wake = next_wake();
  // The thread makes progress soon after a grace period in any case.
  if (grace_period && wake.at_ns == kNever && wake.interest == Interest::kNewWork) {
    wake.interest = Interest::kWaiting;
  }
  interest_.store(wake.interest);
  // Whoever acted before that store may have seen no interest; whoever acts after will notify.
  const bool missed = leaving_.load() ||
                      (wake.interest == Interest::kNewWork && table_.has_new()) ||
                      (wake.interest != Interest::kNone && wait_is_news());
  return missed ? 0 : wake.at_ns;
}

bool CycleThread::caller_has_progressed() const {
  const uint64_t now = now_ns();
  const uint64_t progressed = caller_progress_ns_.load();
  return now < progressed || now - progressed < kGracePeriodNs;
}

// A caller that waits leaves its processor free, and what it waits for often comes sooner than a
// sleeping thread wakes up. True once there is something to do or `until` has come. Never yields:
// to a thread that computes, or spins, the scheduler would give milliseconds.
bool CycleThread::spin(uint64_t until) const {
  if (!may_spin_ || !rank_waits()) return false;
  std::vector<pollfd> fds = poll_set();
  const uint64_t end = now_ns() + spin_ns_;
  for (uint64_t now = 0; now < end; now = now_ns()) {
    if (now >= until || poll(fds.data(), fds.size(), 0) > 0) return true;
    for (int i = 0; i < kPausesPerPoll; ++i) cpu_pause();
  }
  return false;
}

void CycleThread::sleep(std::unique_lock<std::mutex>& progress_lock, uint64_t until) {
  FAILPOINT("cycle/sleep");
  if (until != 0 && !spin(until)) {
    watched_ = poll_set();
    std::vector<pollfd> fds = watched_;
    progress_lock.unlock();
    ppoll_until(std::move(fds), until);
    progress_lock.lock();
  }
  interest_.store(Interest::kNone);
  wake_.drain();
}

// Sleeps for as long as callers make progress at short intervals, and one grace period more.
void CycleThread::wait_grace_period(std::unique_lock<std::mutex>& progress_lock) {
  std::array<pollfd, 2> fds = {{{wake_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}}};
  const timespec limit{0, kGracePeriodNs};
  in_grace_period_ = true;
  progress_lock.unlock();
  while (ppoll(fds.data(), fds.size(), &limit, nullptr) == 0 && caller_has_progressed()) {
  }
  progress_lock.lock();
  in_grace_period_ = false;
  interest_.store(Interest::kNone);
  wake_.drain();
}

}  // namespace hvdtune
