// The collectives of a process set carried out by MPI, on a communicator of the set's own.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/stop.h"
#include "collective/backend.h"
#include "mpi/communicator.h"

namespace hvdtune {

// Everything goes through memory of the backend's own, a chunk at a time: that keeps MPI's counts
// small whatever the tensors' size, and when a rank dies in the middle, MPI may go on writing there
// while the caller's memory is free.
//
// MPI reduces in the accumulator type; scaling, averaging and rounding are done as in our own
// algorithms.
class MpiBackend : public Backend {
 public:
  MpiBackend(std::unique_ptr<MpiCommunicator> comm, const StopSignal& stop);
  ~MpiBackend() override;

  bool allreduce(Group& group, const Reduction& reduction, const Payload& payload) override;
  bool allgather(Group& group, const uint8_t* input, uint8_t* output,
                 std::span<const size_t> block_bytes) override;
  bool broadcast(Group& group, int root, const uint8_t* input, uint8_t* output,
                 size_t bytes) override;
  bool alltoall(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                uint8_t* output, std::span<const size_t> recv_bytes) override;
  bool reducescatter(Group& group, const Reduction& reduction, const uint8_t* input,
                     uint8_t* output, std::span<const size_t> counts) override;
  bool barrier(Group& group) override;

 private:
  template <typename Start>
  void run(const char* what, Start start);
  size_t largest_anywhere(std::span<const size_t> bytes);

  std::unique_ptr<MpiCommunicator> comm_;
  const StopSignal& stop_;
  std::unique_ptr<ScratchBuffers> scratch_;
};

// Thread rule: the cycle thread.
class MpiBackendSource : public BackendSource {
 public:
  // `job` has the job's ranks in their order.
  MpiBackendSource(std::shared_ptr<MpiCommunicator> job, const StopSignal& stop)
      : job_(std::move(job)), stop_(stop) {}

  std::unique_ptr<Backend> for_ranks(std::span<const int> world_ranks) override;

 private:
  std::shared_ptr<MpiCommunicator> job_;
  const StopSignal& stop_;
};

}  // namespace hvdtune
