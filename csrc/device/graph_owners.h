// Who owns what a CUDA graph uses, for as long as the graph can be launched.
#pragma once

#include <memory>
#include <vector>

#include "device/gpu.h"

namespace hvdtune {

// CUDA says that a graph is gone on a thread that may call nothing of CUDA's. So what the graph has
// kept is only put aside there, and let go of by whoever calls release_dropped().
//
// Thread rule: every member may be called from any thread.
class GraphOwners {
 public:
  using Owners = std::vector<std::shared_ptr<const void>>;

  // The graph that is being captured on `stream` keeps them. REQUIRES: the context is current.
  static void keep(const CudaDriver& driver, CudaStream stream, Owners owners);
  // REQUIRES: the calling thread may call CUDA.
  static void release_dropped();
};

}  // namespace hvdtune
