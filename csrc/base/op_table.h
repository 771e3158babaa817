// THE table of operations: everything that the ranks of a process set can do together, and by what
// rules. Code that treats operations differently asks for a rule of the row, not for the operation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvdtune {

// The values travel on the wire: never renumber an operation, only add.
enum class OpType : uint8_t {
  kAllreduce,
  kBroadcast,
  kAllgather,
  kBarrier,
  kAlltoall,
  kReducescatter,
  kJoin,       // this rank has no more data; it takes part with identity elements until all joined
  kAddSet,     // splits = the ranks of a new process set
  kRemoveSet,  // splits = the number of a process set
};

// Whether an operation can be carried out when ranks of its set have joined.
enum class WithJoined : uint8_t {
  kNever,     // it needs their data
  kIdentity,  // they add the identity element of the reduction, where there is one
  kAlways,    // they have nothing to give
  kNotRoot,   // unless the root is one of them
};

struct OpRow {
  OpType op;
  std::string_view name;
  uint16_t event;  // its kind in timelines, see timeline/event.h
  WithJoined with_joined = WithJoined::kNever;
  bool reduces = false;       // combines elements by a ReduceOp
  bool takes_adasum = false;  // ReduceOp::kAdasum among them
  bool fuses = false;         // several may travel as one bucket
  bool is_cached = true;      // ranks announce it by number when they announce it again
  bool has_rows = false;      // divides or concatenates along the first dimension
  bool is_ragged = false;     // ranks may differ in rows: negotiation tells the result's size
  bool has_root = false;
  bool takes_splits = false;  // rows for each rank, in Request::splits; may differ between ranks
};

inline constexpr std::array kOpTable = {
    OpRow{.op = OpType::kAllreduce,
          .name = "allreduce",
          .event = 5,
          .with_joined = WithJoined::kIdentity,
          .reduces = true,
          .takes_adasum = true,
          .fuses = true},
    OpRow{.op = OpType::kBroadcast,
          .name = "broadcast",
          .event = 6,
          .with_joined = WithJoined::kNotRoot,
          .has_root = true},
    OpRow{.op = OpType::kAllgather,
          .name = "allgather",
          .event = 7,
          .with_joined = WithJoined::kAlways,
          .has_rows = true,
          .is_ragged = true},
    OpRow{
        .op = OpType::kBarrier, .name = "barrier", .event = 8, .with_joined = WithJoined::kAlways},
    OpRow{.op = OpType::kAlltoall,
          .name = "alltoall",
          .event = 18,
          .has_rows = true,
          .is_ragged = true,
          .takes_splits = true},
    OpRow{.op = OpType::kReducescatter,
          .name = "reducescatter",
          .event = 19,
          .reduces = true,
          .has_rows = true},
    OpRow{.op = OpType::kJoin,
          .name = "join",
          .event = 20,
          .with_joined = WithJoined::kAlways,
          .is_cached = false},
    OpRow{.op = OpType::kAddSet, .name = "add_process_set", .event = 8, .is_cached = false},
    OpRow{.op = OpType::kRemoveSet, .name = "remove_process_set", .event = 8, .is_cached = false},
};
inline constexpr int kOpTypeCount = kOpTable.size();

constexpr const OpRow& row_of(OpType op) { return kOpTable[static_cast<size_t>(op)]; }
constexpr std::string_view name_of(OpType op) { return row_of(op).name; }
// Throws Error(kUsage) for a name that no row has.
inline OpType op_named(std::string_view name) {
  for (const OpRow& row : kOpTable) {
    if (row.name == name) return row.op;
  }
  throw Error(ErrorCode::kUsage, "there is no operation " + std::string(name));
}

static_assert(
    [] {
      for (size_t i = 0; i < kOpTable.size(); ++i) {
        if (static_cast<size_t>(kOpTable[i].op) != i) return false;
      }
      return true;
    }(),
    "rows are found by their number");

}  // namespace hvdtune
