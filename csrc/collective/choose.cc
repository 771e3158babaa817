#include "collective/choose.h"

#include <array>
#include <limits>

namespace hvdtune {
namespace {

using enum OpType;
using enum Algorithm;

constexpr size_t kAny = std::numeric_limits<size_t>::max();
constexpr size_t kKiB = 1024;

// The condition of a row on the set's hosts.
enum class Hosts : uint8_t {
  kAny,
  kCrowded,       // more than one, with several ranks on some
  kEqual,         // more than one, equal, with an arena or one rank each
  kEqualShared,   // more than one, equal, with an arena
  kEqualCrowded,  // more than one, equal, several ranks on each
};

bool holds(Hosts hosts, const GroupShape& shape) {
  const bool several = shape.hosts > 1;
  const bool crowded = shape.ranks > shape.hosts;
  switch (hosts) {
    case Hosts::kAny:
      return true;
    case Hosts::kCrowded:
      return several && crowded;
    case Hosts::kEqual:
      return several && shape.homogeneous && (shape.shared || !crowded);
    case Hosts::kEqualShared:
      return several && shape.homogeneous && shape.shared;
    case Hosts::kEqualCrowded:
      return several && shape.homogeneous && crowded;
  }
  return false;
}

struct Rule {
  OpType op;
  Algorithm algorithm;
  int min_ranks;
  size_t max_bytes;
  Hosts hosts;
  bool Setting::* knob;  // null, or one that has to be on
};

// For ranks that do not all share an arena: the first row that holds is the choice, direct where
// none does.
//
// Doubling saves messages: direct sends n-1 of them twice, doubling log2 n once, but the whole
// payload n-1 times; so it is for payloads that cost less than their messages. The bounds are from
// 2, 4 and 16 ranks over loopback TCP: at 4 KiB an allreduce by doubling took 0.4 to 0.7 of the
// time of direct, at 128 KiB 1.1 to 3.9; an allgather gains from 5 ranks on. A ring or
// chain crosses each host's link once, direct once per rank of the host.
constexpr std::array kTable = {
    Rule{kAllreduce, kHierarchical, 2, kAny, Hosts::kEqual, &Setting::hierarchical_allreduce},
    Rule{kAllreduce, kTorus, 2, kAny, Hosts::kEqualCrowded, &Setting::torus_allreduce},
    Rule{kAllreduce, kDoubling, 2, 4 * kKiB, Hosts::kAny, nullptr},

    Rule{kAllgather, kHierarchical, 2, kAny, Hosts::kEqualShared, &Setting::hierarchical_allgather},
    Rule{kAllgather, kDoubling, 5, 128 * kKiB, Hosts::kAny, nullptr},
    Rule{kAllgather, kDirect, 2, 32 * kKiB, Hosts::kAny, nullptr},
    Rule{kAllgather, kRing, 2, kAny, Hosts::kCrowded, nullptr},

    Rule{kBroadcast, kTree, 2, 64 * kKiB, Hosts::kAny, nullptr},
    Rule{kBroadcast, kHierarchical, 2, kAny, Hosts::kEqualShared, nullptr},
    Rule{kBroadcast, kChain, 2, kAny, Hosts::kAny, nullptr},
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

Algorithm choose(OpType op, size_t bytes, const GroupShape& shape, const Setting& setting) {
  if (shape.ranks == 1) return kAlone;
  if (op == kAllreduce && setting.allreduce_algorithm != AllreduceChoice::kAuto) {
    return kNamed[static_cast<size_t>(setting.allreduce_algorithm)];
  }
  if (shape.hosts == 1 && shape.shared) return kShared;
  for (const Rule& row : kTable) {
    if (row.op == op && shape.ranks >= row.min_ranks && bytes <= row.max_bytes &&
        holds(row.hosts, shape) && (row.knob == nullptr || setting.*row.knob)) {
      return row.algorithm;
    }
  }
  return kDirect;
}

bool splits_at_hosts(const GroupShape& shape, const Setting& setting) {
  return setting.hierarchical_allreduce && holds(Hosts::kEqualCrowded, shape);
}

}  // namespace hvdtune
