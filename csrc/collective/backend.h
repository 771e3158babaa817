// Somebody else's collectives (MPI, NCCL), offered instead of our own for a whole process set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collective/group.h"
#include "collective/payload.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// The collectives of one process set. Each returns false, on all ranks alike, for what it does not
// offer, and then ours does it: that may depend on the kind of operation only. Results are not
// promised to have the bits of ours.
//
// Thread rule: the cycle thread.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual bool allreduce(Group& group, const Reduction& reduction, const Payload& payload) = 0;
  virtual bool allgather(Group& group, const uint8_t* input, uint8_t* output,
                         std::span<const size_t> block_bytes) = 0;
  virtual bool broadcast(Group& group, int root, const uint8_t* input, uint8_t* output,
                         size_t bytes) = 0;
  virtual bool alltoall(Group& group, const uint8_t* input, std::span<const size_t> send_bytes,
                        uint8_t* output, std::span<const size_t> recv_bytes) = 0;
  virtual bool reducescatter(Group& group, const Reduction& reduction, const uint8_t* input,
                             uint8_t* output, std::span<const size_t> counts) = 0;
  virtual bool barrier(Group& group) = 0;
};

// Makes the backends of a job's process sets.
class BackendSource {
 public:
  virtual ~BackendSource() = default;

  // For the set of these ranks of the job, in the set's order, this process's among them. All of
  // them call at the same point of their sequence of operations.
  virtual std::unique_ptr<Backend> for_ranks(std::span<const int> world_ranks) = 0;
};

}  // namespace hvdtune
