// Every message between ranks, and between rank 0 and the launcher.
//
// Grammar (codec.h gives the primitives; protocol version kWireVersion):
//   Announce  = u32 adopted_version, u64 cycles_seen, u8 flags, [u32 cached], [Request], [StepMark]
//   Request   = u8 op, u8 reduce_op, u8 dtype, i32 root, f64 prescale, f64 postscale, str name,
//               [i64 shape]
//   StepMark  = u64 step, u64 duration_ns
//   Cycle     = u64 number, u32 setting_version, u8 has_setting, Setting if so, [Response],
//               [BucketCut], [u32 evicted], [i32 departed]
//   Setting   = f64 for each knob, in table order
//   Response  = u32 cache_id, u8 compact, i32 last_rank, u64 late_ns,
//               unless compact: Request, [i64 first_dims], str error
//   BucketCut = u32 tensors, u8 reason
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/hmac.h"
#include "base/knob.h"
#include "base/reduce_op.h"

namespace hvdtune {

inline constexpr uint8_t kWireVersion = 1;
inline constexpr uint32_t kNoCacheId = 0xffffffff;

enum class OpType : uint8_t { kAllreduce, kBroadcast, kAllgather, kBarrier };
inline constexpr int kOpTypeCount = 4;

std::string_view name_of(OpType op);

// One rank's description of one operation on one tensor.
struct Request {
  OpType op = OpType::kAllreduce;
  ReduceOp reduce_op = ReduceOp::kSum;
  DType dtype = DType::kFloat32;
  int32_t root = 0;
  double prescale = 1.0;
  double postscale = 1.0;
  std::string name;
  std::vector<int64_t> shape;

  bool operator==(const Request&) const = default;
};

// No dimension is negative and the bytes of so many elements can be counted.
bool is_countable(const std::vector<int64_t>& shape);
// REQUIRES: is_countable(shape).
int64_t element_count(const std::vector<int64_t>& shape);
size_t bytes_of(const Request& request);

// The time from one step boundary of a rank to the next.
struct StepMark {
  uint64_t step = 0;
  uint64_t duration_ns = 0;
};

// Rank -> coordinator: what has become available on this rank since the last one.
struct Announce {
  uint32_t adopted_version = 0;
  uint64_t cycles_seen = 0;  // number of the last Cycle this rank has applied
  bool waiting = false;      // a thread of this rank is blocked on a pending operation
  bool leaving = false;      // the rank shuts down; nothing follows
  std::vector<uint32_t> cached;
  std::vector<Request> requests;
  std::vector<StepMark> steps;
};

// One operation that every rank has announced.
struct Response {
  Request request;                  // as rank 0's; shape of an allgather is rank 0's own
  std::vector<int64_t> first_dims;  // allgather: first dimension on every rank
  std::string error;                // not empty: the ranks disagree, nothing is executed
  uint32_t cache_id = kNoCacheId;   // the number under which every rank remembers it
  bool compact = false;             // travels as its cache_id only
  int32_t last_rank = -1;           // who announced last
  uint64_t late_ns = 0;             // how long after the first
};

enum class CutReason : uint8_t { kAllReady, kThreshold, kAlone, kFusionOff };
inline constexpr int kCutReasonCount = 4;
std::string_view name_of(CutReason reason);

// How many consecutive responses of a cycle form a bucket, and why it was closed.
struct BucketCut {
  uint32_t tensors = 0;
  CutReason reason = CutReason::kAllReady;
};

// Coordinator -> every rank: what to execute next, in order. All ranks apply the same cycles.
struct Cycle {
  uint64_t number = 0;
  uint32_t setting_version = 0;
  std::optional<Setting> setting;  // present when this cycle changes it
  std::vector<Response> responses;
  std::vector<BucketCut> buckets;
  std::vector<uint32_t> evicted;  // cache ids to forget
  std::vector<int32_t> departed;  // ranks that have shut down
};

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
StepReport decode_step_report(Bytes bytes);
Notice decode_notice(Bytes bytes);
Proposal decode_proposal(Bytes bytes);

}  // namespace hvdtune
