// The parts of a rank that the cycle thread and its executor use.
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

// Owns nothing: all parts outlive their users.
struct Services {
  Mesh& mesh;
  OperationTable& table;
  Health& health;
  StopSignal& stop;
  const RankLease& lease;
  WorkCounter& work_counter;
  Recorder& recorder;
  Recorder::EventBuffer& events;  // of the cycle thread
  GpuThread* gpu = nullptr;       // null: no operations on GPUs
};

}  // namespace hvdtune
