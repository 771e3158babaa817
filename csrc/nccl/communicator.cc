#include "nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// NCCL has nothing to sleep on: its state is asked again and again, ever more seldom.
class Pause {
 public:
  void take() {
    std::this_thread::sleep_for(time_);
    time_ = std::min(2 * time_, kLongest);
  }

 private:
  static constexpr std::chrono::microseconds kLongest{1000};
  std::chrono::microseconds time_{10};
};

}  // namespace

NcclCommunicator::NcclCommunicator(std::shared_ptr<NcclLibrary> library, const NcclId& id, int size,
                                   int rank, std::string name, const StopSignal& stop,
                                   const RankLease& lease)
    : library_(std::move(library)),
      size_(size),
      rank_(rank),
      name_(std::move(name)),
      stop_(stop),
      lease_(lease) {
  NcclConfig config = library_->config();
  begun_ = library_->init_rank(&comm_, size, id, rank, &config);
}

void NcclCommunicator::meet() { settle(begun_, "ncclCommInitRankConfig"); }

NcclCommunicator::~NcclCommunicator() { abort(); }

NcclResult NcclCommunicator::state() const {
  NcclResult state = kNcclSuccess;
  const NcclResult result = library_->async_error(comm_, &state);
  return result == kNcclSuccess ? state : result;
}

void NcclCommunicator::settle(NcclResult result, const char* what) {
  Pause pause;
  while (result == kNcclInProgress) {
    if (stop_.raised()) throw Error(ErrorCode::kShutdown, "stopped");
    pause.take();
    result = state();
  }
  check(result, what);
}

void NcclCommunicator::check(NcclResult result, const char* what) const {
  if (result != kNcclSuccess && result != kNcclInProgress) fail(result, what);
}

void NcclCommunicator::check_health() const { check(state(), "an operation in flight"); }

// What the network did is the news of another rank's end, which the health channel may have with
// its number; all else is this rank's own failure.
void NcclCommunicator::fail(NcclResult result, const char* what) const {
  const bool is_of_others = result == kNcclRemoteError || result == kNcclSystemError;
  throw Error(is_of_others ? ErrorCode::kRankLost : ErrorCode::kInternal,
              std::string(what) + " of " + name_ + " failed: " + library_->describe(result));
}

void NcclCommunicator::leave() {
  lease_.await(stop_);
  settle(library_->finalize(comm_), "ncclCommFinalize");
  check(library_->destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

void NcclCommunicator::abort() noexcept {
  if (comm_ != nullptr) library_->abort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::abort_together(const NcclLibrary& library,
                                      std::span<NcclCommunicator* const> communicators) noexcept {
  library.group_start();
  for (NcclCommunicator* each : communicators) each->abort();
  library.group_end();
}

}  // namespace hvdtune
