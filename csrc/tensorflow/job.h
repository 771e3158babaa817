// The job that this process is part of, as kernels find it.
#pragma once

#include <memory>

#include "framework_api.h"

namespace hvdtune_tensorflow {

const hvdtune_framework_api& api();

// Of the job as it is now, for as long as the pointer lives; null before `init` and after
// `shutdown`. May be called from any thread.
std::shared_ptr<hvdtune_job> job();

}  // namespace hvdtune_tensorflow
