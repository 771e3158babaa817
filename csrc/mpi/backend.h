// The collectives of a process set carried out by MPI, on a communicator of the set's own.
#pragma once

#include <memory>
#include <span>

#include "base/stop.h"
#include "collective/backend.h"
#include "mpi/communicator.h"

namespace hvdtune {

std::unique_ptr<Backend> make_mpi_backend(std::unique_ptr<MpiCommunicator> comm,
                                          const StopSignal& stop);

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
