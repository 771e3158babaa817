// What the cycle thread and its executor use of the rest of a rank.
#pragma once

#include "base/lease.h"
#include "base/stop.h"
#include "runtime/health/work_counter.h"
#include "timeline/recorder.h"
#include "transport/mesh.h"

namespace hvdtune {

class GpuThread;
class Health;
class OperationTable;

// Nothing is owned: all of it outlives its users.
struct Services {
  Mesh& mesh;
  OperationTable& table;
  Health& health;
  StopSignal& stop;
  const RankLease& lease;
  WorkCounter& work_counter;
  Recorder& recorder;
  Recorder::EventBuffer& events;  // of the cycle thread
  GpuThread* gpu = nullptr;       // null: tensors on GPUs are not carried
};

}  // namespace hvdtune
