// When a batch of announcements or of ready tensors is sent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvdtune {

struct OutgoingBatch {
  uint64_t last_sent_ns = 0;     // when the batch before it went
  size_t bytes = 0;              // of tensor data it stands for
  bool everybody_waits = false;  // nothing can be added to it: sending late gains nothing
};

// The instant at which `batch` is due; not after now_ns means at once. The cycle time is a window
// that collects: a batch after a pause of at least one window goes immediately, and so does one
// that fills a bucket.
inline uint64_t due_ns(const OutgoingBatch& batch, uint64_t now_ns, double cycle_time_ms,
                       int64_t fusion_threshold_bytes) {
  const bool full =
      fusion_threshold_bytes > 0 && batch.bytes >= static_cast<size_t>(fusion_threshold_bytes);
  if (batch.everybody_waits || full) return now_ns;
  return batch.last_sent_ns + static_cast<uint64_t>(cycle_time_ms * 1e6);
}

}  // namespace hvdtune
