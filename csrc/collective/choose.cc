#include "collective/choose.h"

#include <array>
#include <limits>

namespace hvdtune {
namespace {

using enum Collective;
using enum Algorithm;

constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr size_t kKiB = 1024;

// What a row asks of the set's hosts.
enum class Hosts : uint8_t {
  kAny,
  kOneShared,     // one host, with an arena
  kSeveral,       // more than one
  kCrowded,       // more than one, with several ranks on some
  kEqual,         // more than one, equal, with an arena or one rank each
  kEqualShared,   // more than one, equal, with an arena
  kEqualCrowded,  // more than one, equal, several ranks on each
};

bool holds(Hosts hosts, const Place& place) {
  const bool several = place.hosts > 1;
  const bool crowded = place.ranks > place.hosts;
  switch (hosts) {
    case Hosts::kAny:
      return true;
    case Hosts::kOneShared:
      return !several && place.shared;
    case Hosts::kSeveral:
      return several;
    case Hosts::kCrowded:
      return several && crowded;
    case Hosts::kEqual:
      return several && place.homogeneous && (place.shared || !crowded);
    case Hosts::kEqualShared:
      return several && place.homogeneous && place.shared;
    case Hosts::kEqualCrowded:
      return several && place.homogeneous && crowded;
  }
  return false;
}

struct Row {
  Collective collective;
  Algorithm algorithm;
  int min_ranks;
  size_t max_bytes;
  Hosts hosts;
  bool Setting::* knob;  // null, or one that has to be on
};

// The first row that holds is the choice; the last of each collective always does.
//
// Doubling saves messages: direct sends n-1 of them twice, doubling log2 n once, but the whole
// payload n-1 times; so it is for payloads that cost less than their messages. The bounds are from
// 2, 4 and 16 ranks over loopback TCP: at 4 KiB an allreduce by doubling took 0.4 to 0.7 of the
// time of direct, at 128 KiB 1.1 to 3.9; an allgather gains from 5 ranks on. Where no arena is
// shared a ring or chain crosses each host's link once, direct once per rank of the host.
constexpr std::array kTable = {
    Row{kAllreduce, kShared, 2, kAny, Hosts::kOneShared, nullptr},
    Row{kAllreduce, kHierarchical, 2, kAny, Hosts::kEqual, &Setting::hierarchical_allreduce},
    Row{kAllreduce, kTorus, 2, kAny, Hosts::kEqualCrowded, &Setting::torus_allreduce},
    Row{kAllreduce, kDoubling, 2, 4 * kKiB, Hosts::kAny, nullptr},
    Row{kAllreduce, kDirect, 2, kAny, Hosts::kAny, nullptr},

    Row{kAllgather, kShared, 2, kAny, Hosts::kOneShared, nullptr},
    Row{kAllgather, kHierarchical, 2, kAny, Hosts::kEqualShared, &Setting::hierarchical_allgather},
    Row{kAllgather, kDoubling, 5, 128 * kKiB, Hosts::kAny, nullptr},
    Row{kAllgather, kDirect, 2, 32 * kKiB, Hosts::kAny, nullptr},
    Row{kAllgather, kRing, 2, kAny, Hosts::kCrowded, nullptr},
    Row{kAllgather, kDirect, 2, kAny, Hosts::kAny, nullptr},

    Row{kBroadcast, kShared, 2, kAny, Hosts::kOneShared, nullptr},
    Row{kBroadcast, kTree, 2, 64 * kKiB, Hosts::kAny, nullptr},
    Row{kBroadcast, kHierarchical, 2, kAny, Hosts::kEqualShared, nullptr},
    Row{kBroadcast, kChain, 2, kAny, Hosts::kAny, nullptr},

    Row{kReducescatter, kShared, 2, kAny, Hosts::kOneShared, nullptr},
    Row{kReducescatter, kDirect, 2, kAny, Hosts::kAny, nullptr},
};

// By AllreduceChoice; the first stands for the table.
constexpr std::array kNamed = {kAlone, kDirect, kDoubling, kChain, kRing, kHalvingDoubling, kTree};

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  constexpr std::array<std::string_view, kAlgorithmCount> kNames = {
      "alone", "shared",           "direct", "doubling", "chain",
      "ring",  "halving_doubling", "tree",   "torus",    "hierarchical"};
  return kNames[static_cast<size_t>(algorithm)];
}

Algorithm choose(Collective collective, size_t bytes, const Place& place, const Setting& setting) {
  if (place.ranks == 1) return kAlone;
  if (collective == kAllreduce && setting.allreduce_algorithm != AllreduceChoice::kAuto) {
    return kNamed[static_cast<size_t>(setting.allreduce_algorithm)];
  }
  for (const Row& row : kTable) {
    if (row.collective == collective && place.ranks >= row.min_ranks && bytes <= row.max_bytes &&
        holds(row.hosts, place) && (row.knob == nullptr || setting.*row.knob)) {
      return row.algorithm;
    }
  }
  return kDirect;
}

}  // namespace hvdtune
