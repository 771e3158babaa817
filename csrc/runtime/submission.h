// What no rank could ever carry out, told to the caller at once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

// Why no rank could combine by this reduction; empty when it could.
std::string flaw_of_reduction(OpType op, ReduceOp reduce_op);

// Gives a request that takes splits and has none as many rows for each rank, where they divide.
// REQUIRES: flaw_of(*request) is empty.
void fill_splits(std::shared_ptr<const Request>& request, size_t ranks);

// Why ranks `ranks` of a job of `size` could not mean this request; empty when they could.
// REQUIRES: flaw_of(request) is empty.
std::string flaw_for_set(const Request& request, const std::vector<int>& ranks, int size);

}  // namespace hvdtune
