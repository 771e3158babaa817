// One recording: a file, and the thread that fills it from the buffers every 25 ms.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "timeline/event_buffer.h"
#include "timeline/file.h"

namespace hvdtune {

struct RecorderOptions {
  std::string path = {};   // replaced if it exists; so is path + ".1" (see file.h)
  uint64_t max_bytes = 0;  // of both files together; 0 = no cap
  WhenFull when_full = WhenFull::kRing;
  StepWindow steps = {};
  std::string metadata = {};      // JSON object, copied into the file as it is
  size_t buffer_records = 65536;  // ring of each buffer made from here on, a power of two; 2 MiB
  // How long start() and stop() wait for a disk that does not answer.
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);
};

// Thread rule: every member may be called from any thread. Nobody waits for the disk but in
// await_open() and await_end().
class Recording {
 public:
  // The thread opens the file, too.
  static std::shared_ptr<Recording> begin(std::shared_ptr<EventBuffers> buffers,
                                          RecorderOptions options);
  // REQUIRES: await_end() was called.
  ~Recording() = default;
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  // True once it has a file or has failed to get one.
  bool await_open(Deadline deadline);
  // Records are taken no more; those that are there are still written.
  void ask_to_end();
  // False when the file is not whole by then: its thread goes on alone, nobody waits for it again,
  // and whoever records next takes the buffers from it.
  bool await_end(Deadline deadline);
  bool has_ended() const { return state_.load() == RecordingState::kEnded; }

  const RecorderOptions& options() const { return options_; }
  // Records lost so far: buffers were full, or the file could not be written.
  uint64_t lost() const;
  // The first failure, "" if there was none.
  std::string error() const;

 private:
  enum class RecordingState : int { kOpening, kOpen, kEnded };

  Recording(std::shared_ptr<EventBuffers> buffers, RecorderOptions options);
  void run();
  bool open();
  void drain();
  void finish();
  void enter(RecordingState state);
  void note_error(const std::string& text);
  bool await(RecordingState state, Deadline deadline);

  const std::shared_ptr<EventBuffers> buffers_;
  const RecorderOptions options_;
  StopSignal stop_;
  std::unique_ptr<TraceFile> file_;  // the thread's
  std::vector<Record> block_;        // the thread's
  std::atomic<uint64_t> unwritten_{0};
  std::atomic<uint64_t> dropped_before_{0};  // by the buffers
  std::atomic<uint64_t> lost_{0};            // once ended
  std::atomic<RecordingState> state_{RecordingState::kOpening};
  std::atomic<bool> given_up_{false};
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable moved_;
  bool ending_ = false;
  std::string error_;
  std::thread thread_;
};

}  // namespace hvdtune
