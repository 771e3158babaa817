// The kernels of device/kernels.h as PTX text.
#pragma once

namespace hvdtune {

extern const char* const kKernelsPtx;

}  // namespace hvdtune
