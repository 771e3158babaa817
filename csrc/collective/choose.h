// Which algorithm carries out a collective: one table, one pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/knob.h"
#include "base/op_table.h"

namespace hvdtune {

// What each is, and for which collectives it exists, is said in their headers.
enum class Algorithm : uint8_t {
  kAlone,
  kShared,
  kDirect,
  kDoubling,
  kChain,
  kRing,
  kHalvingDoubling,
  kTree,
  kTorus,
  kHierarchical,
};
inline constexpr int kAlgorithmCount = 10;
std::string_view name_of(Algorithm algorithm);

// Whether sums have the canonical order (reduce.h), and so the bits of every other that has.
constexpr bool is_canonical(Algorithm algorithm) {
  return algorithm != Algorithm::kRing && algorithm != Algorithm::kHalvingDoubling &&
         algorithm != Algorithm::kTree;
}

// Where a set's ranks live.
struct GroupShape {
  int ranks = 1;
  int hosts = 1;
  bool homogeneous = true;  // every host has the same number of ranks
  bool shared = false;      // the ranks of a host share an arena
};

// The same on every rank for the same arguments. `bytes` is the size of the result: of a bucket, of
// all blocks together. REQUIRES: `op` can be done alone, shared and direct.
Algorithm choose(OpType op, size_t bytes, const GroupShape& shape, const Setting& setting);

// Whether NCCL reduces tensors on GPUs within hosts only, and choose() what goes between them.
bool splits_at_hosts(const GroupShape& shape, const Setting& setting);

}  // namespace hvdtune
