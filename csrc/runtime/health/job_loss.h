// The error that this job fails with.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "base/status.h"
#include "base/stop.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread; mutex_ guards all that changes.
class JobLoss {
 public:
  // `failed` is raised when the loss is published; it must outlive this.
  explicit JobLoss(StopSignal& failed) : failed_(failed) {}

  std::optional<Error> get() const;
  // The rank whose connection to another broke although that one may live; -1 if unknown.
  int reporter() const;

  // Keeps `error` unless there is a loss already.
  void note(const Error& error, int reporter = -1);
  // Keeps `error` in place of any other: the other ranks have it.
  void replace(const Error& error);
  // Wakes threads in await() and raises the stop signal.
  void publish();
  // Returns when there is a loss, or after that time.
  void await(std::chrono::nanoseconds time) const;

 private:
  StopSignal& failed_;
  mutable std::mutex mutex_;
  mutable std::condition_variable published_;
  std::optional<Error> loss_;
  int reporter_ = -1;
};

}  // namespace hvdtune
