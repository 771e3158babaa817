// Records what a rank does into a file, at a cost that allows it to be always on.
//
// Each producing thread owns an EventBuffer: a ring in memory that it alone fills. One writer
// thread empties all buffers every 25 ms, so that a process that is killed leaves what is older
// than that. Memory is bounded; a full buffer drops its newest records, counts them, and the count
// is in the file. Nothing here ever blocks a producer, whatever the disk does.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "timeline/event_buffer.h"
#include "timeline/recording.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread. An EventBuffer's record() belongs to
// one.
class Recorder {
 public:
  using EventBuffer = hvdtune::EventBuffer;

  // Idle, without thread or buffers, until start().
  Recorder() = default;
  ~Recorder();  // stops
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Call once per producing thread. The buffer lives as long as the recorder, over start and stop.
  EventBuffer& add_buffer() { return buffers_->add(); }

  // See Names::intern.
  uint32_t intern(std::string_view name, std::string_view detail = {}) {
    return buffers_->names.intern(name, detail);
  }

  // Whether records are taken now: there is a file, and the step is one of those wanted.
  bool enabled() const { return buffers_->sampling.sampled(); }
  // The step under way from here on.
  void begin_step(uint64_t step) { buffers_->sampling.begin_step(step); }

  // Throws Error(kUsage) naming the path when it cannot be written, or when already started.
  void start(const RecorderOptions& options);
  // Writes what the buffers hold and the footer; gives up after the timeout of the options. Returns
  // why the file is not whole, "" if it is or nothing was recorded.
  std::string stop();

  // The same without waiting for the disk. A recording that is under way is kept, with all steps
  // until cancel(). Returns why nothing can be recorded now, "" if it can.
  std::string request(const RecorderOptions& options);
  void cancel();

  // Records lost since start(): buffers were full, or the file could not be written.
  uint64_t dropped() const;

  // Why the file could not be written, "" when all went well since start().
  std::string write_error() const;

 private:
  std::shared_ptr<Recording> newest() const;
  bool is_recording() const;
  void reap_locked();
  std::string end(Deadline deadline);

  const std::shared_ptr<EventBuffers> buffers_ = std::make_shared<EventBuffers>();
  mutable std::mutex mutex_;              // guards the rest; nobody waits under it
  std::shared_ptr<Recording> recording_;  // null when idle
  std::shared_ptr<Recording> last_;
  bool requested_ = false;  // by request(): cancel() ends it
};

}  // namespace hvdtune
