// The unit of work of the GPU's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "nccl/collectives.h"
#include "runtime/operation.h"
#include "timeline/recorder.h"

namespace hvdtune {

// A record of the timeline whose times are known when the operation is complete.
struct GpuRecord {
  EventKind kind;
  uint32_t name;
  uint32_t seq;
  uint32_t bucket;
  uint32_t arg;
};

// A bucket.
struct GpuTask {
  uint32_t process_set = 0;
  bool within_host = false;  // among the ranks of the set that are on this host
  std::optional<NcclId> id;  // of the communicator, if this is its first task
  int size = 1;              // of the communicator; and this rank's number in it
  int rank = 0;
  bool in_graph = false;
  GpuOrder order;
  std::vector<GpuCall> calls;
  std::vector<std::shared_ptr<Operation>> operations;  // without those of ranks that have joined
  std::vector<std::shared_ptr<GpuMemory>> memory;      // besides, kept until it is complete
  std::vector<GpuRecord> records;
  bool completes = true;  // its operations; otherwise a later task does
  // If several tasks carry out one bucket, they share this: the time at which the earliest recorded
  // one began. Only the GPU's thread uses it.
  std::shared_ptr<uint64_t> begun_ns = {};
};

// A task on the stream that is not complete.
struct GpuFlight {
  GpuTask task;
  std::shared_ptr<GpuEvent> done;
  uint64_t begin_ns;
  std::unique_ptr<GpuEvent> begun;  // passes when all tensors are computed; null if not recorded
};

}  // namespace hvdtune
