// A communicator of NCCL that no call blocks on: every wait looks at its state and at the stop
// signal. Nothing is put on a stream without the lease: kernels of NCCL write into other ranks'
// memory, which those who have given this rank up may have taken back.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/lease.h"
#include "base/stop.h"
#include "nccl/library.h"

namespace hvdtune {

// Thread rule: one thread, the same for all communicators of a process.
class NcclCommunicator {
 public:
  // Begins to meet the others: those of the same id, each with another rank below `size`. `name`
  // says in messages whose it is. Every wait throws Error(kShutdown) once `stop` is raised.
  NcclCommunicator(std::shared_ptr<NcclLibrary> library, const NcclId& id, int size, int rank,
                   std::string name, const StopSignal& stop, const RankLease& lease);
  // Gives it up if leave() has not been called.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Returns when all have come: to be called first.
  void meet();

  const NcclLibrary& library() const { return *library_; }
  int size() const { return size_; }
  int rank() const { return rank_; }

  // Puts the operation on its stream that `call` begins, a function of the library and the
  // communicator; returns when it is there, which says nothing about when it is carried out.
  template <typename Call>
  void issue(const char* what, Call call) {
    lease_.await(stop_);
    settle_launch(call(*library_, comm_), what);
  }
  // Several operations as one, which no order between them can block.
  template <typename Calls>
  void issue_group(const char* what, Calls calls) {
    check(library_->group_start(), what);
    calls(*library_, comm_);
    lease_.await(stop_);  // only now are they put there
    settle_launch(library_->group_end(), what);
  }
  // Whether NCCL's own thread may still put on a stream what was issued, since the wait for that
  // was stopped.
  bool is_launching() const { return launch_pending_ && state() == kNcclInProgress; }
  // For calls within a group.
  void check(NcclResult result, const char* what) const;
  // Throws what has befallen operations that were issued.
  void check_health() const;

  // All operations are done, on all ranks.
  void leave();
  // The same where CUDA graphs have operations of it: on a thread of its own, which ends when the
  // last of them is gone, since NCCL waits for that.
  void leave_behind_graphs();
  // Nothing can be done with it any more, and whoever called this has to abort what it gives, which
  // ends operations that other ranks never will. Null if it was left or given up before.
  NcclComm give_up() { return std::exchange(comm_, nullptr); }
  // Several at once, none of which waits for kernels of another if library.has_group_abort().
  static void abort(const NcclLibrary& library, std::span<const NcclComm> given_up) noexcept;

 private:
  void settle(NcclResult result, const char* what);
  void settle_launch(NcclResult result, const char* what);
  NcclResult state() const;
  [[noreturn]] void fail(NcclResult result, const char* what) const;

  const std::shared_ptr<NcclLibrary> library_;
  const int size_;
  const int rank_;
  const std::string name_;
  const StopSignal& stop_;
  const RankLease& lease_;
  NcclComm comm_ = nullptr;
  NcclResult begun_ = kNcclSuccess;
  bool launch_pending_ = false;
};

}  // namespace hvdtune
