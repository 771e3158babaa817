// How much of a processor a thread had.
#pragma once

#include <cstdint>
#include <optional>

namespace hvdtune {

struct CpuTime {
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // could run, but another thread did; 0 where Linux does not tell
};

// Thread rule: one thread at a time.
class CpuTimeMeter {
 public:
  // The processor time of the calling thread since it last called; none if another thread called
  // last.
  std::optional<CpuTime> since_last();

 private:
  int thread_ = 0;
  CpuTime last_;
};

}  // namespace hvdtune
