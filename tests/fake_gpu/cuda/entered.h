// What every function of the driver checks first.
#pragma once

#include <string>

#include "../engine/engine.h"
#include "../engine/violations.h"
#include "../include/fake_cuda.h"

namespace fake_gpu {

inline CUresult entered(const char* caller) {
  if (in_callback()) {
    violate("call-in-callback",
            std::string(caller) +
                " is called in a host function of a stream, where no call of CUDA "
                "is allowed: it may wait for the stream that runs it.");
    return CUDA_ERROR_NOT_PERMITTED;
  }
  return engine().initialized ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace fake_gpu
