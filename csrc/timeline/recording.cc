#include "timeline/recording.h"

#include <poll.h>

#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// A record of this age is in the file when the process is killed, unless the writer got no
// processor.
constexpr int kDrainEveryMs = 25;

}  // namespace

Recording::Recording(std::shared_ptr<EventBuffers> buffers, RecorderOptions options)
    : buffers_(std::move(buffers)), options_(std::move(options)) {}

std::shared_ptr<Recording> Recording::begin(std::shared_ptr<EventBuffers> buffers,
                                            RecorderOptions options) {
  const std::shared_ptr<Recording> made(new Recording(std::move(buffers), std::move(options)));
  const std::lock_guard lock(made->mutex_);
  made->thread_ = std::thread([made] { made->run(); });
  return made;
}

bool Recording::await_open(Deadline deadline) { return await(RecordingState::kOpen, deadline); }

bool Recording::await_end(Deadline deadline) {
  if (given_up_.load()) return has_ended();
  const bool ended = await(RecordingState::kEnded, deadline);
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    thread.swap(thread_);
  }
  if (!thread.joinable()) return ended;
  if (ended) {
    thread.join();
  } else {
    note_error("cannot write the timeline " + options_.path + ": the disk did not respond for " +
               seconds_text(options_.timeout));
    thread.detach();
    given_up_.store(true);
  }
  return ended;
}

bool Recording::await(RecordingState state, Deadline deadline) {
  const uint64_t now = now_ns();
  const auto left = std::chrono::nanoseconds(deadline.at_ns() - std::min(deadline.at_ns(), now));
  const auto until = wait_limit(left);
  std::unique_lock lock(mutex_);
  return moved_.wait_until(lock, until, [&] { return state_.load() >= state; });
}

void Recording::ask_to_end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    buffers_->close(this);
  }
  stop_.raise();
}

uint64_t Recording::lost() const {
  if (has_ended()) return lost_.load();
  if (state_.load() == RecordingState::kOpening) return 0;
  return buffers_->dropped() - dropped_before_.load() + unwritten_.load();
}

std::string Recording::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Recording::note_error(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (error_.empty()) error_ = text;
}

void Recording::enter(RecordingState state) {
  const std::lock_guard lock(mutex_);
  state_.store(state);
  moved_.notify_all();
}

void Recording::run() {
  uint64_t noted = 0;
  if (open()) {
    while (!stop_.raised() && !file_->is_full()) {
      pollfd wait{stop_.fd(), POLLIN, 0};
      poll(&wait, 1, kDrainEveryMs);
      drain();
      if (const uint64_t now = lost(); now != noted) {
        file_->note_drops(now);
        noted = now;
      }
    }
    finish();
  }
  enter(RecordingState::kEnded);
}

bool Recording::open() {
  try {
    file_ = std::make_unique<TraceFile>(TraceFileOptions{
        .path = options_.path,
        .max_bytes = options_.max_bytes,
        .when_full = options_.when_full,
        .metadata = options_.metadata.empty() ? "{}" : options_.metadata,
        .recording = now_ns(),
        .name_of = [this](uint32_t id) { return buffers_->names.name_of(id); },
        .detail_of = [this](uint32_t id) { return buffers_->names.detail_of(id); }});
  } catch (const Error& error) {
    note_error(error.what());
    return false;
  }
  buffers_->claim(this, options_.buffer_records);
  dropped_before_.store(buffers_->dropped());
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) buffers_->open(this, options_.steps);
  }
  enter(RecordingState::kOpen);
  return true;
}

void Recording::drain() {
  for (size_t buffer = 0; buffer < buffers_->count(); ++buffer) {
    // No further than one ring: a quick producer must not keep the others waiting.
    for (size_t moved = 0; moved < options_.buffer_records && !file_->is_full();) {
      if (!buffers_->take(this, buffer, TraceFile::kBlockRecords, block_)) break;
      moved += block_.size();
      const size_t written = file_->append(block_);
      if (!file_->is_full()) unwritten_ += block_.size() - written;
    }
  }
  if (!file_->error().empty()) note_error(file_->error());
}

void Recording::finish() {
  buffers_->close(this);
  drain();
  lost_.store(lost());
  file_->finish(lost_.load());
  if (!file_->error().empty()) note_error(file_->error());
  file_.reset();
}

}  // namespace hvdtune
