#include "timeline/recorder.h"

#include <bit>
#include <utility>

#include "base/status.h"

namespace hvdtune {

Recorder::~Recorder() { stop(); }

void Recorder::start(const RecorderOptions& options) {
  if (!std::has_single_bit(options.buffer_records)) {
    throw Error(ErrorCode::kUsage, "buffer_records must be a power of two");
  }
  const Deadline deadline = Deadline::in(options.timeout);
  // The records that are still in the buffers belong to the last recording.
  if (const auto recording = newest(); recording != nullptr && !is_recording()) {
    recording->await_end(deadline);
  }
  std::shared_ptr<Recording> made;
  {
    const std::lock_guard lock(mutex_);
    reap_locked();
    if (recording_ != nullptr) {
      throw Error(ErrorCode::kUsage, "cannot record to " + options.path + ": already recording");
    }
    made = recording_ = Recording::begin(buffers_, options);
    requested_ = false;
  }
  if (made->await_open(deadline) && !made->has_ended()) return;
  end(deadline);
  throw Error(ErrorCode::kUsage, made->error());
}

std::string Recorder::stop() {
  const std::shared_ptr<Recording> recording = newest();
  return recording == nullptr ? "" : end(Deadline::in(recording->options().timeout));
}

std::string Recorder::end(Deadline deadline) {
  std::shared_ptr<Recording> ending;
  {
    const std::lock_guard lock(mutex_);
    ending = std::exchange(recording_, nullptr);
    if (ending == nullptr) return {};
    last_ = ending;
  }
  ending->ask_to_end();
  ending->await_end(deadline);
  return ending->error();
}

std::string Recorder::request(const RecorderOptions& options) {
  const std::lock_guard lock(mutex_);
  reap_locked();
  if (recording_ == nullptr) {
    recording_ = Recording::begin(buffers_, options);
    requested_ = true;
    return {};
  }
  if (requested_) return recording_->options().path + " is still being written";
  buffers_->sampling.want_all(true);
  return {};
}

void Recorder::cancel() {
  const std::lock_guard lock(mutex_);
  buffers_->sampling.want_all(false);
  if (recording_ != nullptr && requested_) recording_->ask_to_end();
}

// A recording that was cancelled ends by itself.
void Recorder::reap_locked() {
  if (recording_ == nullptr || !requested_ || !recording_->has_ended()) return;
  recording_->await_end(Deadline::in({}));
  last_ = std::exchange(recording_, nullptr);
}

bool Recorder::is_recording() const {
  const std::lock_guard lock(mutex_);
  return recording_ != nullptr;
}

std::shared_ptr<Recording> Recorder::newest() const {
  const std::lock_guard lock(mutex_);
  return recording_ != nullptr ? recording_ : last_;
}

uint64_t Recorder::dropped() const {
  const std::shared_ptr<Recording> recording = newest();
  return recording == nullptr ? 0 : recording->lost();
}

std::string Recorder::write_error() const {
  const std::shared_ptr<Recording> recording = newest();
  return recording == nullptr ? std::string() : recording->error();
}

}  // namespace hvdtune
