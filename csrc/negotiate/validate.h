// Whether all ranks mean the same operation.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rank_mask.h"
#include "wire/message.h"

namespace hvdtune {

// What some ranks announced.
using Version = std::pair<const Request*, RankMask>;

// Empty when the versions agree; else a sentence that says which ranks want what. Ragged
// operations may differ in the first dimension.
std::string disagreement(std::span<const Version> versions);

// "[3, 4]"
std::string list_of(const std::vector<int64_t>& values);

// "allreduce(sum) float32 [3, 4]"
std::string describe(const Request& request);

// "rank 3", "ranks 0, 2"
std::string describe(const RankMask& ranks);

}  // namespace hvdtune
