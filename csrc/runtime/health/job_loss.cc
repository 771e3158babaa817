#include "runtime/health/job_loss.h"

#include "base/clock.h"

namespace hvdtune {

std::optional<Error> JobLoss::get() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

int JobLoss::reporter() const {
  const std::lock_guard lock(mutex_);
  return reporter_;
}

void JobLoss::note(const Error& error, int reporter) {
  const std::lock_guard lock(mutex_);
  if (loss_) return;
  loss_ = error;
  reporter_ = reporter;
}

void JobLoss::replace(const Error& error) {
  const std::lock_guard lock(mutex_);
  loss_ = error;
}

void JobLoss::publish() {
  published_.notify_all();
  failed_.raise();
}

void JobLoss::await(std::chrono::nanoseconds time) const {
  std::unique_lock lock(mutex_);
  published_.wait_until(lock, wait_limit(time), [&] { return loss_.has_value(); });
}

}  // namespace hvdtune
