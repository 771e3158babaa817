// What a timeline consists of: kinds of events, and the 32-byte record of one. The values are
// written to files: never renumber a kind, only add.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/op_table.h"

namespace hvdtune {

// Spans last from begin_ns to end_ns. Fields not named for a kind are 0. The kinds of operations
// have their numbers in base/op_table.h, see event_of.
enum class EventKind : uint16_t {
  kStep = 1,       // span; seq = step index from 0; outside of the waits of the thread that marks
                   // steps: arg = us it had a processor (0: unknown), bucket = us it could run and
                   // had none
  kNegotiate = 2,  // span, announced to response received; name, seq = sequence number within its
                   // process set (same on every rank), bucket, arg = see negotiate_arg
  kLate = 3,  // in files from before the first release only: who was late follows from kNegotiate
              // of all ranks. Instant at begin_ns; duration = how late the last rank's announcement
              // was behind the first's; name, seq, arg = last rank
  kQueue =
      4,  // span, response received to its bucket's start; name, seq, bucket, arg = process set
  kBucket = 9,  // span; bucket = its number, the same on every rank, seq = number of tensors,
                // arg = bytes, name = why it was closed
  kPack = 10,   // span inside a bucket, as the next four; bucket, arg = bytes
  kReduce = 11,
  kExchange = 12,
  kUnpack = 13,
  kWait = 14,
  kCycle = 15,        // instant; seq = cycle number, arg = tensors in it, bucket = bytes
  kKnobAdopted = 16,  // instant; arg = version of the setting, name = its JSON text
  kClock = 17,        // see clock_record
  kSpan = 21,         // span; name = what the script did, see Runtime::mark_span
  kBlocked = 22,      // span; a caller waited for operations to end
  kPeer = 23,         // span inside an exchange; all that was lacking was one peer's part;
                      // seq = 1 + its world rank, bucket
  kStreamWait = 24,   // span; a stream of a GPU, to which the script gives its work, had nothing
                      // else to do until a bucket was done; bucket. 0 ns: it was done before
  kEnqueueWait = 25,  // span; a caller waited until operations were on a GPU's stream
};

// Span, bucket start to done, one per tensor; name, seq, bucket, arg = bytes.
constexpr EventKind event_of(OpType op) { return static_cast<EventKind>(row_of(op).event); }

// Fields are little endian in files. Times are this rank's CLOCK_MONOTONIC.
struct Record {
  uint64_t begin_ns;
  uint64_t duration_and_kind;  // low 48 bits: duration in ns (saturating); high 16 bits: kind
  uint32_t name;               // id from Recorder::intern, 0 = none
  uint32_t seq;
  uint32_t bucket;
  uint32_t arg;

  uint64_t duration_ns() const { return duration_and_kind & kMaxDurationNs; }
  EventKind kind() const { return static_cast<EventKind>(duration_and_kind >> 48); }

  static constexpr uint64_t kMaxDurationNs = (uint64_t{1} << 48) - 1;
};
static_assert(sizeof(Record) == 32);
static_assert(std::endian::native == std::endian::little, "records are written as they lie");

// Byte counts are stored in 32 bits: 4 GiB - 1 means that or more.
inline uint32_t saturated(uint64_t bytes) {
  return static_cast<uint32_t>(std::min<uint64_t>(bytes, std::numeric_limits<uint32_t>::max()));
}

inline uint64_t pack_duration(EventKind kind, uint64_t begin_ns, uint64_t end_ns) {
  const uint64_t duration_ns = end_ns > begin_ns ? end_ns - begin_ns : 0;
  return std::min(duration_ns, Record::kMaxDurationNs) | uint64_t{static_cast<uint16_t>(kind)}
                                                             << 48;
}

// Whether the announcement hit the cache, and which process set it was for.
inline uint32_t negotiate_arg(bool cached, uint32_t process_set) {
  return uint32_t{cached} | process_set << 1;
}

// One measurement of rank 0's clock. at_ns: this rank's time in the middle of the round trip;
// offset_ns: what to add to this rank's clock to get rank 0's.
inline Record clock_record(uint64_t at_ns, uint64_t round_trip_ns, int64_t offset_ns) {
  const auto bits = static_cast<uint64_t>(offset_ns);
  return {at_ns,
          pack_duration(EventKind::kClock, 0, round_trip_ns),
          0,
          static_cast<uint32_t>(bits),
          static_cast<uint32_t>(bits >> 32),
          0};
}

}  // namespace hvdtune
