// Who takes turns when: the cycle thread, or a caller that waits; and how the thread sleeps.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <chrono>
#include <limits>
#include <utility>

#include "base/failpoint.h"
#include "runtime/cycle_thread.h"

namespace hvdtune {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
// About what it takes to wake up two ranks one after the other.
constexpr uint64_t kSpinNs = 100'000;
// A caller that comes back within this time finds the way free.
constexpr uint64_t kRestNs = 300'000;
constexpr std::chrono::nanoseconds kLauncherTimeout = std::chrono::seconds(2);

// Whether this thread takes turns now, of any runtime.
thread_local bool takes_turns = false;

class TakingTurns {
 public:
  TakingTurns() { takes_turns = true; }
  ~TakingTurns() { takes_turns = false; }
  TakingTurns(const TakingTurns&) = delete;
  TakingTurns& operator=(const TakingTurns&) = delete;
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

}  // namespace

void CycleThread::work_added() {
  if (interest_.load() == Interest::kNewWork) wake_.notify();
}

void CycleThread::caller_waits(const std::function<bool()>& has_ended, Deadline deadline) {
  if (may_drive_ && drive(has_ended, deadline)) return;
  callers_wait();
}

void CycleThread::callers_wait() {
  // Nobody else has to answer a single rank: a turn is all it takes, and sooner done than the
  // thread is woken. What is told the end of an operation may start another one here.
  if (may_drive_ && size_ == 1 && !takes_turns) {
    if (drive([this] { return !rank_waits(); }, Deadline::in(std::chrono::nanoseconds(kRestNs))))
      return;
  }
  if (interest_.load() != Interest::kNone) wake_.notify();
}

void CycleThread::leave() {
  leaving_.store(true);
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void CycleThread::run() {
  const DefaultRounding rounding;
  const TakingTurns taking;
  std::unique_lock turns(turns_);
  try {
    while (!leaving_.load() && !ended_) {
      turn();
      const bool served = std::exchange(has_served_, false);
      const bool rests = may_drive_ && !rank_waits() && (served || was_driven());
      const uint64_t until = prepare_sleep(rests);
      if (rests && until == kNever) {
        rest(turns);
      } else {
        sleep(turns, until);
      }
    }
    if (!ended_) farewell();
    ended_ = true;
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
  hang_up();
}

// By this the launcher learns that the ranks may form another job, however long this runtime lives.
void CycleThread::hang_up() {
  if (!job_) return;
  try {
    await_delivery([this] { return job_->undelivered_bytes(); }, kLauncherTimeout);
  } catch (const Error& error) {
    log(LogLevel::kDebug, options_.log_level, rank_, error.what());
  }
  job_.reset();
}

// A caller's: takes turns while something happens. False if somebody else takes them, or if
// nothing happens any more; then the thread goes on.
bool CycleThread::drive(const std::function<bool()>& has_ended, Deadline deadline) {
  const std::unique_lock turns(turns_, std::try_to_lock);
  if (!turns || ended_ || leaving_.load()) return false;
  const DefaultRounding rounding;
  const TakingTurns taking;
  interest_.store(Interest::kNone);
  bool ended = false;
  try {
    bool goes_on = true;
    while (goes_on) {
      wake_.drain();  // whatever it was for is done in a turn, or told again below
      turn();
      ended = has_ended();
      goes_on = !ended && !leaving_.load() && !deadline.passed() && spin(next_wake().at_ns);
    }
    driven_ns_.store(now_ns());
    const uint64_t until = prepare_sleep(resting_);
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
  return resting_ || std::ranges::equal(poll_set(), watched_, same);
}

CycleThread::Wake CycleThread::next_wake() const {
  Wake wake{kNever, Interest::kNone};
  if (!departed_.empty()) return wake;
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
    if (!timeline_.empty()) wake.at_ns = now;
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
uint64_t CycleThread::prepare_sleep(bool rests) {
  Wake wake = next_wake();
  // A turn follows a rest soon in any case.
  if (rests && wake.at_ns == kNever && wake.interest == Interest::kNewWork) {
    wake.interest = Interest::kWaiting;
  }
  interest_.store(wake.interest);
  // Whoever acted before that store may have seen no interest; whoever acts after will notify.
  const bool missed = leaving_.load() ||
                      (wake.interest == Interest::kNewWork && table_.has_new()) ||
                      (wake.interest != Interest::kNone && wait_is_news());
  return missed ? 0 : wake.at_ns;
}

bool CycleThread::was_driven() const {
  const uint64_t now = now_ns();
  const uint64_t driven = driven_ns_.load();
  return now < driven || now - driven < kRestNs;
}

// A caller that waits leaves its processor free, and what it waits for often comes sooner than a
// sleeping thread wakes up. True once there is something to do or `until` has come.
bool CycleThread::spin(uint64_t until) const {
  if (!may_spin_ || !rank_waits()) return false;
  std::vector<pollfd> fds = poll_set();
  const uint64_t end = now_ns() + kSpinNs;
  for (uint64_t now = 0; now < end; now = now_ns()) {
    if (now >= until || poll(fds.data(), fds.size(), 0) > 0) return true;
    sched_yield();
  }
  return false;
}

void CycleThread::sleep(std::unique_lock<std::mutex>& turns, uint64_t until) {
  FAILPOINT("cycle/sleep");
  if (until != 0 && !spin(until)) {
    watched_ = poll_set();
    std::vector<pollfd> fds = watched_;
    const uint64_t left = until - std::min(until, now_ns());
    const timespec limit{static_cast<time_t>(left / 1'000'000'000),
                         static_cast<long>(left % 1'000'000'000)};
    turns.unlock();
    ppoll(fds.data(), fds.size(), until == kNever ? nullptr : &limit, nullptr);
    turns.lock();
  }
  interest_.store(Interest::kNone);
  wake_.drain();
}

// For as long as callers take turns at short intervals, and a moment more.
void CycleThread::rest(std::unique_lock<std::mutex>& turns) {
  std::array<pollfd, 2> fds = {{{wake_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}}};
  const timespec limit{0, kRestNs};
  resting_ = true;
  turns.unlock();
  while (ppoll(fds.data(), fds.size(), &limit, nullptr) == 0 && was_driven()) {
  }
  turns.lock();
  resting_ = false;
  interest_.store(Interest::kNone);
  wake_.drain();
}

}  // namespace hvdtune
