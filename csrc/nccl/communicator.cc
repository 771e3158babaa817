#include "nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

constexpr std::chrono::milliseconds kLookForGraphs{100};

// NCCL has nothing to sleep on: its state is asked again and again, ever more seldom. What NCCL's
// own thread launches is there after some tens of microseconds, which is less than a sleep takes.
class Pause {
 public:
  void take() {
    if (std::chrono::steady_clock::now() < awake_until_) {
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(time_);
    time_ = std::min(2 * time_, kLongest);
  }

 private:
  static constexpr std::chrono::microseconds kAwake{200};
  static constexpr std::chrono::microseconds kLongest{1000};
  const std::chrono::steady_clock::time_point awake_until_ =
      std::chrono::steady_clock::now() + kAwake;
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

NcclCommunicator::~NcclCommunicator() {
  if (comm_ != nullptr) library_->abort(comm_);
}

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

void NcclCommunicator::settle_launch(NcclResult result, const char* what) {
  launch_pending_ = true;
  settle(result, what);
  launch_pending_ = false;
}

void NcclCommunicator::check(NcclResult result, const char* what) const {
  if (result != kNcclSuccess && result != kNcclInProgress) fail(result, what);
}

void NcclCommunicator::check_health() const { check(state(), "an operation in flight"); }

// What the network did is the news of another rank's end, which the health channel may have with
// its number; all else is this rank's own failure.
void NcclCommunicator::fail(NcclResult result, const char* what) const {
  const bool is_of_others = result == kNcclRemoteError || result == kNcclSystemError;
  std::string text = std::string(what) + " of " + name_ + " failed: " + library_->describe(result);
  if (text.find("Duplicate GPU") != std::string::npos) {
    text +=
        "; select a different GPU on each rank before the first tensor, with "
        "torch.cuda.set_device(hvd.local_rank()) or tf.config.set_visible_devices; if ranks share "
        "a GPU, set HVDTUNE_GPU_OPERATIONS=host";
  }
  throw Error(is_of_others ? ErrorCode::kRankLost : ErrorCode::kInternal, text);
}

void NcclCommunicator::leave() {
  lease_.await(stop_);
  settle(library_->finalize(comm_), "ncclCommFinalize");
  check(library_->destroy(std::exchange(comm_, nullptr)), "ncclCommDestroy");
}

// NCCL's own thread waits for the graphs; this one only looks whether it has ended.
void NcclCommunicator::leave_behind_graphs() {
  std::thread([library = library_, comm = give_up()] {
    NcclResult state = library->finalize(comm);
    while (state == kNcclInProgress) {
      std::this_thread::sleep_for(kLookForGraphs);
      if (library->async_error(comm, &state) != kNcclSuccess) return;
    }
    library->destroy(comm);
  }).detach();
}

void NcclCommunicator::abort(const NcclLibrary& library,
                             std::span<const NcclComm> given_up) noexcept {
  if (given_up.size() > 1) library.group_start();
  for (NcclComm each : given_up) library.abort(each);
  if (given_up.size() > 1) library.group_end();
}

}  // namespace hvdtune
