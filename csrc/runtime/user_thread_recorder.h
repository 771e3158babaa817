// Records what the user's threads do: waits for operations, spans that the script marks, and the
// processor time of the thread that marks steps.
#pragma once

#include <cstdint>
#include <mutex>
#include <string_view>

#include "runtime/cpu_time_meter.h"
#include "timeline/recorder.h"

namespace hvdtune {

// Thread rule: every member may be called from any thread; the mutex makes them one producer.
class UserThreadRecorder {
 public:
  explicit UserThreadRecorder(Recorder& recorder)
      : recorder_(recorder), events_(recorder.add_buffer()) {}

  bool enabled() const { return recorder_.enabled(); }

  // The caller is about to wait, and has waited. What was done already is not worth a record.
  void begin_wait(uint64_t now_ns);
  void end_wait(uint64_t begin_ns, uint64_t now_ns, EventKind kind = EventKind::kBlocked);

  // Names come from a script, so few are different.
  void span(std::string_view name, uint64_t begin_ns, uint64_t end_ns);

  // Measures the processor time of the calling thread from begin to end, without its waits. Reading
  // it costs microseconds, so stretches and waits below 0.2 ms are not told apart. Returns zeros if
  // the step was not recorded from its begin on.
  void begin_step();
  CpuTime end_step();

 private:
  void take_own();

  Recorder& recorder_;
  std::mutex mutex_;
  Recorder::EventBuffer& events_;
  int marker_ = 0;  // the thread that marks steps
  CpuTimeMeter meter_;
  CpuTime own_;
  uint64_t last_wait_ns_ = 0;
};

}  // namespace hvdtune
