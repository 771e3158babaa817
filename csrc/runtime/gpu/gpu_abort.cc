#include "runtime/gpu/gpu_abort.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace hvdtune {

GpuAbort::GpuAbort(std::shared_ptr<NcclLibrary> nccl, int rank, std::chrono::nanoseconds timeout)
    : nccl_(std::move(nccl)), rank_(rank), timeout_(timeout) {}

void GpuAbort::run(const Sets& sets, const GpuStream* stream) const {
  const Time until = std::chrono::steady_clock::now() + timeout_;
  const bool in_graphs =
      std::ranges::any_of(sets, [](const auto* set) { return set->is_in_graphs(); });
  // An abort ends NCCL's threads that launch. Of communicators in graphs it also ends the
  // operations, but comes back only when the graphs, which own what these use, are gone.
  if (in_graphs) {
    await(until, "NCCL did not launch a pending operation", [&] {
      return std::ranges::none_of(sets,
                                  [](auto* set) { return set->communicator().is_launching(); });
    });
  }
  const std::vector<std::future<void>> aborts = begin_aborts(sets);
  if (!in_graphs) {
    await(until, "NCCL did not close its communicators", [&] {
      return std::ranges::all_of(aborts, [](const auto& abort) {
        return abort.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      });
    });
  }
  if (stream == nullptr) return;
  await(until, "the GPU did not finish its pending work", [&] { return stream->is_idle(); });
}

// Together: giving one up waits for kernels that may be behind another's. On threads of their own,
// since they may not come back, and this one may have left a group open.
std::vector<std::future<void>> GpuAbort::begin_aborts(const Sets& sets) const {
  std::vector<NcclComm> all;
  for (GpuCollectives* set : sets) {
    if (NcclComm comm = set->communicator().give_up()) all.push_back(comm);
  }
  std::vector<std::future<void>> aborts;
  const auto begin = [&](std::vector<NcclComm> some) {
    std::promise<void> done;
    aborts.push_back(done.get_future());
    std::thread([nccl = nccl_, some = std::move(some), done = std::move(done)]() mutable {
      NcclCommunicator::abort(*nccl, some);
      done.set_value();
    }).detach();
  };
  if (nccl_->has_group_abort() && !all.empty()) {
    begin(all);
  } else {
    for (NcclComm each : all) begin({each});
  }
  return aborts;
}

void GpuAbort::await(Time until, const char* otherwise,
                     const std::function<bool()>& is_done) const {
  while (!is_done()) {
    if (std::chrono::steady_clock::now() >= until) end_process(otherwise);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void GpuAbort::end_process(const std::string& why) const {
  end_while_written_to(rank_, why + " within " + seconds_text(timeout_) + " of the job's failure");
}

}  // namespace hvdtune
