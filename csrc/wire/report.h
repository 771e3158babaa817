// What ranks tell rank 0 about themselves on their health connections.
//
//   Introduction = i32 pid, u64 pid_namespace
//   Pulse        = u64 sent_ns, u64 stuck_ns, u64 cpu_ns
//   Report       = u32 round, u32 waiting_threads, str stack, u32 left_out, [Called]
//   Called       = u32 process_set, u8 joins, u64 age_ns, str name, str description
//   Look         = i32 rank, Introduction
//   Sighting     = i32 rank, u8 sight
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hmac.h"

namespace hvdtune {

// So that others on its host can look at the process.
struct Introduction {
  int32_t pid = 0;
  uint64_t pid_namespace = 0;

  bool operator==(const Introduction&) const = default;
};

// Sent with every ping.
struct Pulse {
  uint64_t sent_ns = 0;
  uint64_t stuck_ns = 0;  // for how long an operation has been pending and nothing moved
  uint64_t cpu_ns = 0;    // processor time of the whole process since its start

  bool operator==(const Pulse&) const = default;
};

// An operation that a rank has called and that is not done.
struct Called {
  uint32_t process_set = 0;
  bool joins = false;  // the rank takes part in whatever the set's other ranks call
  uint64_t age_ns = 0;
  std::string name;
  std::string description;

  bool operator==(const Called&) const = default;
};

struct Report {
  uint32_t round = 0;
  uint32_t waiting_threads = 0;
  std::string stack;      // of Python's main thread, innermost call first; empty if unknown
  uint32_t left_out = 0;  // called, but not listed
  std::vector<Called> called;

  bool operator==(const Report&) const = default;
};

// Asks a rank to look at another one of its host, which is silent.
struct Look {
  int32_t rank = 0;
  Introduction who;

  bool operator==(const Look&) const = default;
};

enum class Sight : uint8_t { kUnknown, kRuns, kStopped, kGone };
inline constexpr int kSightCount = 4;

struct Sighting {
  int32_t rank = 0;
  Sight sight = Sight::kUnknown;

  bool operator==(const Sighting&) const = default;
};

std::vector<uint8_t> encode(const Introduction& introduction);
std::vector<uint8_t> encode(const Pulse& pulse);
std::vector<uint8_t> encode(const Report& report);
std::vector<uint8_t> encode(const Look& look);
std::vector<uint8_t> encode(const Sighting& sighting);
Introduction decode_introduction(Bytes bytes);
Pulse decode_pulse(Bytes bytes);
Report decode_report(Bytes bytes);
Look decode_look(Bytes bytes);
Sighting decode_sighting(Bytes bytes);

}  // namespace hvdtune
