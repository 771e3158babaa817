// Every message between ranks, and between rank 0 and the launcher.
//
// Grammar (codec.h gives the primitives; protocol version kWireVersion):
//   Announce  = u32 adopted_version, u64 cycles_seen, u64 cycles_applied, u8 waiting,
//               [i32 leaving], Ids cached, [IdClaim], [Claim], [StepMark], [StepHold]
//   IdClaim   = u32 id, [i32 ranks]
//   Claim     = Request, [i32 ranks]
//   Request   = u8 op, u8 reduce_op, i32 root, u32 process_set, f64 prescale, f64 postscale,
//               str name, [TensorSpec], [i64 splits], u8 on_gpu, u8 in_graph
//   TensorSpec= u8 dtype, [i64 shape]
//   StepMark  = i32 rank, u64 step, u64 duration_ns
//   StepHold  = i32 rank, u32 version, u64 passed
//   Cycle     = u64 number, u32 setting_version, u8 has_setting, Setting if so, u32 prepares,
//               u64 switch_at, u32 responses, runs of responses until there are so many,
//               [BucketCut], [u32 evicted], [i32 departed], u8 has_timeline, TimelineOrder if so
//   run       = u8 0, Response | u8 1, Ids (of compact responses)
//   Setting   = f64 for each knob, in table order, [ScriptValue]
//   ScriptValue = str name, str value
//   Response  = Request, [i64 first_dims], str error, u32 cache_id
//   BucketCut = u32 tensors, u8 reason
//   TimelineOrder = u8 record, str path, u64 max_bytes
//   Ids       = u8 0, [u32] | u8 1, u32 first, [u64]: bit i of word w says first + 64 w + i
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/hmac.h"
#include "base/knob.h"
#include "base/op_table.h"
#include "base/reduce_op.h"

namespace hvdtune {

inline constexpr uint8_t kWireVersion = 9;
inline constexpr uint32_t kNoCacheId = 0xffffffff;

struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec&) const = default;
};

// All ranks of the job, the process set that always exists.
inline constexpr uint32_t kWorldSet = 0;

// Names travel in every message about an operation that is new.
inline constexpr size_t kMostNameBytes = 4096;

// One rank's description of one operation. Several tensors are a group: announced, ready and
// carried out together or not at all.
struct Request {
  OpType op = OpType::kAllreduce;
  ReduceOp reduce_op = ReduceOp::kSum;
  int32_t root = 0;  // a rank of the job
  uint32_t process_set = kWorldSet;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  std::vector<TensorSpec> tensors;
  std::vector<int64_t> splits;  // alltoall: rows for each rank of the set; see OpType for others
  bool on_gpu = false;          // the tensors are in a GPU's memory
  bool in_graph = false;        // it becomes part of a CUDA graph, and runs when that is launched

  bool operator==(const Request&) const = default;
};

// No dimension is negative and the bytes of so many elements can be counted.
bool is_countable(const std::vector<int64_t>& shape);
// REQUIRES: is_countable(shape).
int64_t element_count(const std::vector<int64_t>& shape);
size_t bytes_of(const TensorSpec& tensor);
size_t bytes_of(const Request& request);

// What no rank could ever mean, as a sentence; empty when there is nothing.
std::string flaw_of(const Request& request);

// The time from one step boundary of a rank to the next.
struct StepMark {
  int32_t rank = 0;
  uint64_t step = 0;
  uint64_t duration_ns = 0;
};

// A rank's answer to a cycle that prepares a version: how many step boundaries its script has
// passed. See StepSwitch for what it promises.
struct StepHold {
  int32_t rank = 0;
  uint32_t version = 0;
  uint64_t passed = 0;
};

// Ranks that have announced a cached request, or the same request in full.
struct IdClaim {
  uint32_t id = 0;
  std::vector<int32_t> ranks;
};
struct Claim {
  Request request;
  std::vector<int32_t> ranks;
};

// Rank -> its parent in the negotiation tree: what has become available on all ranks from here
// down since the last one.
struct Announce {
  uint32_t adopted_version = 0;  // by every rank from here down
  // Numbers of Cycles: numbers forgotten up to this one are not in use here any more, and the last
  // one that all of them have applied.
  uint64_t cycles_seen = 0;
  uint64_t cycles_applied = 0;
  bool waiting = false;          // each has a thread that is blocked on a pending operation
  std::vector<int32_t> leaving;  // shut down; nothing follows from them
  std::vector<uint32_t> cached;  // announced by all of them that are in its process set
  std::vector<IdClaim> partly;   // announced by these only; the others have joined, or all wait
  std::vector<Claim> requests;
  std::vector<StepMark> steps;
  std::vector<StepHold> holds;
};

// One operation that every rank of its set has announced.
struct Response {
  Request request;  // as the lowest rank's that announced it; first dimensions are its own
  // allgather: rows by tensor and rank of the set; alltoall: by sending and receiving rank;
  // join: the last rank; new process set: its number.
  std::vector<int64_t> first_dims;
  std::string error;               // not empty: the ranks disagree, nothing is executed
  uint32_t cache_id = kNoCacheId;  // the number under which every rank remembers it
  bool compact = false;            // travels as its cache_id only
};

// The first and the last two: there was room left. Everybody waited, so that nothing could come; or
// a cycle time had passed; or enough was ready for a bucket in all.
enum class CutReason : uint8_t {
  kAllReady,
  kThreshold,  // the next one would not have fitted
  kAlone,
  kFusionOff,
  kKind,  // what was ready besides is of another dtype, operation, scaling or process set
  kCycleTime,
  kEnough,
};
inline constexpr int kCutReasonCount = 7;
std::string_view name_of(CutReason reason);

// How many consecutive responses of a cycle form a bucket, and why it was closed.
struct BucketCut {
  uint32_t tensors = 0;
  CutReason reason = CutReason::kAllReady;
};

// Launcher -> rank 0, and from there with a cycle to every rank: record from here on, or no longer.
struct TimelineOrder {
  bool record = false;
  std::string path;        // of each rank's file, %r for the rank
  uint64_t max_bytes = 0;  // of that; the oldest records go; 0 = no cap

  bool operator==(const TimelineOrder&) const = default;
};

// Coordinator -> every rank: what to execute next, in order. All ranks apply the same cycles.
struct Cycle {
  uint64_t number = 0;
  uint32_t setting_version = 0;
  std::optional<Setting> setting;  // present when this cycle changes it
  uint32_t prepares = 0;           // a version that will change values of the script; 0: none
  uint64_t switch_at = 0;  // the step boundary at which the setting's do; 0: they stay as they are
  std::vector<Response> responses;
  std::vector<BucketCut> buckets;
  std::vector<uint32_t> evicted;  // cache ids to forget
  std::vector<int32_t> departed;  // ranks that have shut down
  std::optional<TimelineOrder> timeline;
};

// `announce.cached` is in ascending order.
std::vector<uint8_t> encode(const Announce& announce);
std::vector<uint8_t> encode(const Cycle& cycle);
Announce decode_announce(Bytes bytes);
// Compact responses come back with cache_id only; the response cache completes them.
Cycle decode_cycle(Bytes bytes);

// Rank 0 -> launcher.
struct StepReport {
  uint64_t step = 0;
  int64_t version = 0;  // -1: a setting was adopted inside this step
  uint64_t end_ns = 0;  // rank 0's clock
  std::vector<uint64_t> durations_ns;
};
struct Notice {
  int32_t subject = 0;  // a rank, or a setting version
  std::string text;
};
// Launcher -> rank 0.
struct Proposal {
  uint32_t version = 0;
  Setting setting;
};

std::vector<uint8_t> encode(const StepReport& report);
std::vector<uint8_t> encode(const Notice& notice);
std::vector<uint8_t> encode(const Proposal& proposal);
std::vector<uint8_t> encode(const TimelineOrder& order);
StepReport decode_step_report(Bytes bytes);
Notice decode_notice(Bytes bytes);
Proposal decode_proposal(Bytes bytes);
TimelineOrder decode_timeline_order(Bytes bytes);

}  // namespace hvdtune
