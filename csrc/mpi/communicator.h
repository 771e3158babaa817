// A communicator of our own: a duplicate of the user's, or some of its ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/stop.h"
#include "mpi/library.h"

namespace hvdtune {

// When to give up waiting for the other ranks. `stop` may be null.
struct MpiPatience {
  Deadline deadline = Deadline::never();
  const StopSignal* stop = nullptr;
};

// Thread rule: one thread at a time.
class MpiCommunicator {
 public:
  // Of *(MPI_Comm*)handle, or of MPI_COMM_WORLD when handle is null; all its ranks must call.
  // Throws Error(kRendezvous) when one does not in time.
  static std::unique_ptr<MpiCommunicator> duplicate(std::shared_ptr<MpiLibrary> library,
                                                    const void* handle,
                                                    const MpiPatience& patience);
  // Those ranks of MPI_COMM_WORLD, in that order; they must all call, and wait for each other.
  static std::unique_ptr<MpiCommunicator> of_world(std::shared_ptr<MpiLibrary> library,
                                                   std::span<const int> ranks);
  // Those ranks of this one, likewise. `tag` tells apart what several threads make at a time.
  std::unique_ptr<MpiCommunicator> subset(std::span<const int> ranks, int tag) const;
  ~MpiCommunicator();

  const std::shared_ptr<MpiLibrary>& library() const { return library_; }
  hvdtune_mpi_comm* handle() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // The lowest rank on this process's node. All ranks must call.
  int node() const;
  // Returns root's bytes on every rank.
  std::string broadcast(const std::string& bytes, int root, const MpiPatience& patience);
  // What each rank gave, in rank order: text of less than 256 bytes.
  std::vector<std::string> gather(const std::string& text, const MpiPatience& patience);

  // Waits until what `start` has begun is done. MPI has nothing to sleep on: this asks it again and
  // again, giving the processor away between. Throws Error(kShutdown) once stop is raised,
  // Error(kTimeout) when the deadline passes; the operation then goes on inside MPI, and its
  // memory must be kept for ever.
  template <typename Start>
  void run(const char* what, const MpiPatience& patience, Start start) {
    hvdtune_mpi_request* request = nullptr;
    library_->check(start(library_->functions(), comm_, &request), what);
    await(request, what, patience);
  }

 private:
  MpiCommunicator(std::shared_ptr<MpiLibrary> library, hvdtune_mpi_comm* comm);
  void await(hvdtune_mpi_request* request, const char* what, const MpiPatience& patience);
  void learn_place();

  std::shared_ptr<MpiLibrary> library_;
  hvdtune_mpi_comm* comm_;
  int rank_ = 0;
  int size_ = 1;
  bool abandoned_ = false;  // has an operation that will never end: must not be freed
};

}  // namespace hvdtune
