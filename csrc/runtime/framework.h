// For Python, which hands the addresses to a framework's own library.
#pragma once

#include <cstdint>

#include "runtime/runtime.h"

namespace hvdtune {

// Of the hvdtune_framework_api, which is never freed.
uintptr_t framework_api();
// Of a hvdtune_job that belongs to the caller.
uintptr_t new_job(const Runtime& runtime);

}  // namespace hvdtune
