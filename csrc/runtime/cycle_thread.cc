#include "runtime/cycle_thread.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cfenv>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "runtime/gpu/gpu_thread.h"
#include "transport/backoff.h"

namespace hvdtune {
namespace {

using Interest = Negotiation::Interest;
using Wake = Negotiation::Wake;

constexpr uint64_t kNever = Negotiation::kNever;
constexpr int kPausesPerPoll = 8;
// A caller that returns within this time can make progress at once.
constexpr uint64_t kGracePeriodNs = 300'000;

// True while this thread makes progress, for any runtime.
thread_local bool makes_progress = false;

class ProgressScope {
 public:
  ProgressScope() { makes_progress = true; }
  ~ProgressScope() { makes_progress = false; }
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;
};

// Sets the default rounding and handling of subnormals. Both belong to a thread, and sums must not
// depend on the caller's.
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

CycleThread::CycleThread(const Services& services, const CycleOptions& options)
    : rank_(services.mesh.topology.rank),
      size_(services.mesh.topology.size),
      log_level_(options.log_level),
      mesh_(services.mesh),
      table_(services.table),
      health_(services.health),
      gpu_(services.gpu),
      stop_(services.stop),
      may_spin_(spins_for(services.mesh) > 0),
      spin_ns_(caller_spin_ns(services.mesh.costs)),
      // A library under the collectives may require one thread for all calls.
      callers_may_progress_(may_spin_ && options.backends == nullptr && services.gpu == nullptr),
      launcher_(services.mesh, options.log_level),
      steering_(services, launcher_, options.setting, options.log_level, options.timeline,
                1 + services.mesh.branches.size()),
      negotiation_(services, launcher_, steering_, options.backends, options.after_join) {
  thread_ = std::thread(&CycleThread::run, this);
}

CycleThread::~CycleThread() { shut_down(); }

void CycleThread::declare(const std::string& knobs) {
  steering_.declare(knobs);
  wake_.notify();
}

uint32_t CycleThread::propose(const Setting& setting) {
  const uint32_t version = steering_.propose(setting);
  wake_.notify();
  return version;
}

void CycleThread::work_added() {
  if (interest_.load() == Interest::kNewWork) wake_.notify();
}

void CycleThread::progress_for_caller(const std::function<bool()>& has_ended, Deadline deadline) {
  if (callers_may_progress_ && progress_in_caller(has_ended, deadline)) return;
  wake_for_callers();
}

void CycleThread::wake_for_callers() {
  // A single rank needs no answer: one step here is faster than waking the thread. A completion
  // callback may start another operation here.
  if (callers_may_progress_ && size_ == 1 && !makes_progress) {
    if (progress_in_caller([this] { return !rank_waits(); },
                           Deadline::in(std::chrono::nanoseconds(kGracePeriodNs))))
      return;
  }
  if (interest_.load() != Interest::kNone) wake_.notify();
}

void CycleThread::shut_down() {
  negotiation_.begin_leaving();
  steering_.abandon();
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void CycleThread::run() {
  const DefaultRounding rounding;
  const ProgressScope scope;
  std::unique_lock progress_lock(progress_mutex_);
  try {
    while (!negotiation_.is_leaving() && !ended_) {
      make_progress();
      const bool served = negotiation_.take_served();
      const bool grace_period =
          callers_may_progress_ && !rank_waits() && (served || caller_has_progressed());
      const uint64_t until = prepare_sleep(grace_period);
      if (grace_period && until == kNever) {
        wait_grace_period(progress_lock);
      } else {
        sleep(progress_lock, until);
      }
    }
    if (!ended_) negotiation_.leave();
    ended_ = true;
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
  launcher_.disconnect();
}

// Makes progress on the caller's thread until the operation has ended; between steps the caller
// spins, then sleeps. Returns false if another thread is making progress, or once the deadline has
// passed; then the cycle thread continues.
bool CycleThread::progress_in_caller(const std::function<bool()>& has_ended, Deadline deadline) {
  const std::unique_lock progress_lock(progress_mutex_, std::try_to_lock);
  if (!progress_lock || ended_ || negotiation_.is_leaving()) return false;
  if (mesh_.arena) mesh_.arena->move_apart();
  const DefaultRounding rounding;
  const ProgressScope scope;
  bool ended = false;
  try {
    for (;;) {
      interest_.store(Interest::kNone);
      wake_.drain();  // the work is done below, or notified again
      make_progress();
      ended = has_ended();
      if (ended || negotiation_.is_leaving() || deadline.passed()) break;
      const uint64_t until = std::min(prepare_sleep(false), deadline.at_ns());
      if (until != 0 && !spin(until)) ppoll_until(poll_set(), until);
    }
    caller_progress_ns_.store(now_ns());
    const uint64_t until = prepare_sleep(in_grace_period_);
    // Read after the interest was stored: a caller that began to wait earlier has not notified.
    if (until != kNever || rank_waits() || !is_watched()) wake_.notify();
  } catch (const Error& error) {
    fail(error);
  } catch (const std::exception& error) {
    fail(Error(ErrorCode::kInternal, error.what()));
  }
  return ended;
}

// True if the sleeping thread watches the current connections, or will check them soon.
bool CycleThread::is_watched() const {
  const auto same = [](const pollfd& a, const pollfd& b) {
    return a.fd == b.fd && a.events == b.events;
  };
  return in_grace_period_ || std::ranges::equal(poll_set(), watched_, same);
}

std::vector<pollfd> CycleThread::poll_set() const {
  std::vector<pollfd> fds = {{wake_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}};
  negotiation_.add_to(fds);
  launcher_.add_to(fds);
  return fds;
}

// Publishes the events that must wake this thread. Returns the time to wake up at, 0 for at once.
uint64_t CycleThread::prepare_sleep(bool grace_period) {
  Wake wake = negotiation_.next_wake();
  // The thread makes progress soon after a grace period in any case.
  if (grace_period && wake.at_ns == kNever && wake.interest == Interest::kNewWork) {
    wake.interest = Interest::kWaiting;
  }
  interest_.store(wake.interest);
  // Callers that acted before that store may not have notified; later ones will.
  const bool missed = negotiation_.is_leaving() ||
                      (wake.interest == Interest::kNewWork && table_.has_new()) ||
                      (wake.interest != Interest::kNone && negotiation_.wait_is_news());
  return missed ? 0 : wake.at_ns;
}

bool CycleThread::caller_has_progressed() const {
  const uint64_t now = now_ns();
  const uint64_t progressed = caller_progress_ns_.load();
  return now < progressed || now - progressed < kGracePeriodNs;
}

// Spins while a caller waits: its processor is free, and messages often arrive sooner than a
// sleeping thread wakes up. Returns true when there is something to do, or at `until`. Never
// yields: the scheduler would give milliseconds to a thread that computes or spins.
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

// Sleeps while callers make progress at short intervals, and one more grace period.
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

// Returns the failure of the GPU thread if that stopped this one.
Error CycleThread::behind(const Error& error) const {
  if (gpu_ == nullptr || error.code() != ErrorCode::kShutdown || health_.loss()) return error;
  return gpu_->failure().value_or(error);
}

void CycleThread::fail(const Error& seen) {
  const Error error = behind(seen);
  Error cause = error;
  if (error.code() == ErrorCode::kRankLost || error.code() == ErrorCode::kTimeout) {
    cause = health_.resolve_loss(error);
  } else if (error.code() == ErrorCode::kShutdown && health_.loss()) {
    cause = *health_.loss();
  } else {
    // The other ranks get the same text, as the loss of this rank.
    cause = Error(error.code(), "rank " + std::to_string(rank_) + " failed: " + error.what(),
                  error.rank() < 0 ? rank_ : error.rank(), error.tensor());
    health_.report_failure(cause.what());
  }
  ended_ = true;
  stop_.raise();
  steering_.abandon();
  take_back_memory(cause.rank() == rank_ ? -1 : cause.rank());
  if (gpu_ != nullptr) gpu_->abandon();
  table_.close(cause);
  wake_.notify();
  launcher_.send(FrameKind::kLost, encode(Notice{cause.rank(), cause.what()}));
}

// Ends all access to the operations' memory: callers reuse it as soon as they see the failure.
void CycleThread::take_back_memory(int lost) {
  if (!mesh_.arena) return;
  const auto warn = [this](const std::string& text) {
    log(LogLevel::kWarning, log_level_, rank_, text);
  };
  const std::string still_writes = mesh_.arena->abandon(lost, health_.timeout(), warn);
  if (!still_writes.empty()) {
    end_while_written_to(rank_, still_writes + " is lost and could not be stopped");
  }
}

void CycleThread::make_progress() {
  FAILPOINT("cycle/make_progress");
  if (stop_.raised()) throw Error(ErrorCode::kShutdown, "stopped");
  negotiation_.step();
}

}  // namespace hvdtune
