// Records for ever to the path given: one tensor's events in the order the core records them.
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/clock.h"
#include "timeline/recorder.h"

using namespace hvdtune;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Recorder recorder;
  EventBuffer& buffer = recorder.add_buffer();
  recorder.start({.path = argv[1],
                  .max_bytes = std::strtoull(argv[2], nullptr, 10),
                  .metadata = "{\"rank\": 0, \"size\": 1, \"host\": \"alpha\"}"});
  for (uint32_t seq = 0;; ++seq) {
    const uint32_t name = recorder.intern("tensor " + std::to_string(seq % 300));
    const uint64_t now = now_ns();
    buffer.record(EventKind::kNegotiate, now, now + 1000, name, seq, seq, 1);
    buffer.record(event_of(OpType::kAllreduce), now + 1000, now + 3000, name, seq, seq, 64);
    if (seq % 128 == 0) usleep(200);
  }
}
