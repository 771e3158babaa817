// Whether all ranks mean the same operation.
#pragma once

#include <span>
#include <string>

#include "wire/message.h"

namespace hvdtune {

// Empty when by_rank (index = rank) agree; else a sentence that says which ranks want what.
// Allgather may differ in the first dimension.
std::string disagreement(std::span<const Request* const> by_rank);

// "allreduce(sum) float32 [3, 4]"
std::string describe(const Request& request);

}  // namespace hvdtune
