// What the files of NCCL's functions share.
#pragma once

#include "communicator.h"

namespace fake_gpu {

// A communicator of the calling thread's device, in ncclInProgress; null, if there is no device.
ncclComm* new_communicator(std::string name, int size, int rank, bool blocking);

}  // namespace fake_gpu
