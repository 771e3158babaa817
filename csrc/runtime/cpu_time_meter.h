// How much of a processor a thread had.
#pragma once

#include <cstdint>
#include <optional>

namespace hvdtune {

struct ProcessorUse {
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // could run, but another thread did; 0 where Linux does not tell
};

// Thread rule: one thread at a time.
class ProcessorMeter {
 public:
  // What the calling thread had since the same thread called last; none if another did.
  std::optional<ProcessorUse> since_last();

 private:
  int thread_ = 0;
  ProcessorUse last_;
};

}  // namespace hvdtune
