// Ends what NCCL and the GPU do for a job that has failed.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "device/gpu.h"
#include "nccl/collectives.h"
#include "nccl/library.h"

namespace hvdtune {

// Thread rule: the GPU's thread; end_process() may be called from any thread.
class GpuAbort {
 public:
  using Sets = std::vector<GpuCollectives*>;

  // `timeout` is the time that an abort may take.
  GpuAbort(std::shared_ptr<NcclLibrary> nccl, int rank, std::chrono::nanoseconds timeout);

  // Gives up the communicators of all sets. Returns when neither they nor `stream`, if there is
  // one, touch memory any more; ends the process if they still do after the timeout.
  void run(const Sets& sets, const GpuStream* stream) const;
  // Ends the process, as `why` has not happened in time: the GPU may still write to tensors.
  [[noreturn]] void end_process(const std::string& why) const;

 private:
  using Time = std::chrono::steady_clock::time_point;
  std::vector<std::future<void>> begin_aborts(const Sets& sets) const;
  void await(Time until, const char* otherwise, const std::function<bool()>& is_done) const;

  const std::shared_ptr<NcclLibrary> nccl_;
  const int rank_;
  const std::chrono::nanoseconds timeout_;
};

}  // namespace hvdtune
