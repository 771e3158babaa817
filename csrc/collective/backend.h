// Somebody else's collectives (MPI, NCCL), offered instead of our own for a whole process set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/op_table.h"
#include "collective/group.h"
#include "collective/payload.h"
#include "collective/reduce/reduce.h"

namespace hvdtune {

// One collective, as a backend is asked to carry it out. What an operation does not need keeps its
// default; see the headers of our own collectives for what the arrays hold.
struct CollectiveCall {
  OpType op;
  Reduction reduction{};
  const Payload* payload = nullptr;  // of an operation that fuses, in place of input and output
  const uint8_t* input = nullptr;
  uint8_t* output = nullptr;
  size_t bytes = 0;  // of a tensor that has one size on all ranks
  int root = 0;
  std::span<const size_t> to_ranks{};  // what each rank is sent: elements of a reduction, or bytes
  std::span<const size_t> from_ranks{};  // bytes that come from each rank
};

// The collectives of one process set.
//
// Thread rule: the cycle thread.
class Backend {
 public:
  virtual ~Backend() = default;

  // Returns false, on all ranks alike, for what it does not offer, and then ours does it: that may
  // depend on the kind of operation only. Results are not promised to have the bits of ours.
  virtual bool run(Group& group, const CollectiveCall& call) = 0;
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
