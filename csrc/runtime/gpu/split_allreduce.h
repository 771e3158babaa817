// An allreduce of tensors on GPUs of several hosts, of which NCCL carries out what stays within a
// host: hvdtune's own links carry what goes between hosts, so NCCL needs no network.
//
// Chunk after chunk, NCCL reduces what the ranks of a host have and gives each of them a share,
// which is copied to the host's memory. The ranks with the same place on each host reduce their
// shares. They are copied back, and NCCL gives them to all ranks of the host.
#pragma once

#include "base/knob.h"
#include "collective/group.h"
#include "runtime/gpu/gpu_thread.h"

namespace hvdtune {

// `bucket` is what the ranks of this host, alone, would give to the GPU's thread; `column` are the
// ranks with this one's place on each host, all of which have equally many. While the shares of one
// chunk travel, the GPU has the ones before and after it. Returns when the last step is enqueued:
// who waits on the stream waits until then. Throws as GpuThread::await and allreduce do.
//
// Thread rule: the cycle thread.
void split_allreduce(GpuThread& gpu, Group& column, GpuTask bucket, const Setting& setting);

}  // namespace hvdtune
