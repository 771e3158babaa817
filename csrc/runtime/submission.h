// What no rank could ever carry out, told to the caller at once.
#pragma once

#include <string>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

// Empty when ranks `ranks` of a job of `size` could mean this request; else why not.
std::string flaw_for_set(const Request& request, const std::vector<int>& ranks, int size);

}  // namespace hvdtune
