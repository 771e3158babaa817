// What ranks tell rank 0 about themselves on their health connections.
//
//   ProcessIdentity = i32 pid, u64 pid_namespace, u64 started
//   Pulse           = u64 sent_ns, u64 stuck_ns, u64 cpu_ns, u8 blocked, u64 heard_ns
//   RankReport      = u32 round, u32 waiting_threads, str stack, u32 left_out, [Called],
//                     u8 blocked, u64 cycles
//   Called          = u32 process_set, u8 joins, u64 age_ns, str name, str description, u8 gpu
//   ProbeRequest    = i32 rank, ProcessIdentity
//   ProbeResult     = i32 rank, u8 state
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hmac.h"

namespace hvdtune {

// By which other ranks of its host find the process.
struct ProcessIdentity {
  int32_t pid = 0;
  uint64_t pid_namespace = 0;
  uint64_t started = 0;  // clock ticks since boot: tells it from a later process of its number

  bool operator==(const ProcessIdentity&) const = default;
};

// Sent with every ping.
struct Pulse {
  uint64_t sent_ns = 0;
  uint64_t stuck_ns = 0;  // for how long an operation has been pending and nothing moved
  uint64_t cpu_ns = 0;    // processor time of the whole process since its start
  bool blocked = false;   // every thread that could call hvdtune waits in it
  uint64_t heard_ns = 0;  // when the last answer was sent that has come, by its sender's clock

  bool operator==(const Pulse&) const = default;
};

// How far a GPU has come with an operation.
enum class GpuProgress : uint8_t {
  kNone,    // it has not been put on a stream
  kQueued,  // on it, behind others
  kWaits,   // its turn has come, and the GPU has not made its tensors yet
  kRuns,    // it has
};
inline constexpr int kGpuProgressCount = 4;

// An operation that a rank has called and that is not done.
struct Called {
  uint32_t process_set = 0;
  bool joins = false;  // the rank takes part in whatever the set's other ranks call
  uint64_t age_ns = 0;
  std::string name;
  std::string description;
  GpuProgress gpu = GpuProgress::kNone;

  bool operator==(const Called&) const = default;
};

struct RankReport {
  uint32_t round = 0;
  uint32_t waiting_threads = 0;
  std::string stack;      // of Python's main thread, innermost call first; empty if unknown
  uint32_t left_out = 0;  // called, but not listed
  std::vector<Called> called;
  bool blocked = false;  // as of Pulse
  uint64_t cycles = 0;   // carried out; with `blocked`, none was under way

  bool operator==(const RankReport&) const = default;
};

// Asks a rank to probe the process of another rank of its host, which is silent.
struct ProbeRequest {
  int32_t rank = 0;
  ProcessIdentity who;

  bool operator==(const ProbeRequest&) const = default;
};

enum class ProcessState : uint8_t { kUnknown, kRuns, kStopped, kGone };
inline constexpr int kProcessStateCount = 4;

struct ProbeResult {
  int32_t rank = 0;
  ProcessState state = ProcessState::kUnknown;

  bool operator==(const ProbeResult&) const = default;
};

std::vector<uint8_t> encode(const ProcessIdentity& identity);
std::vector<uint8_t> encode(const Pulse& pulse);
std::vector<uint8_t> encode(const RankReport& report);
std::vector<uint8_t> encode(const ProbeRequest& request);
std::vector<uint8_t> encode(const ProbeResult& result);
ProcessIdentity decode_identity(Bytes bytes);
Pulse decode_pulse(Bytes bytes);
RankReport decode_report(Bytes bytes);
ProbeRequest decode_probe_request(Bytes bytes);
ProbeResult decode_probe_result(Bytes bytes);

}  // namespace hvdtune
