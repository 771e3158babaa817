#include "runtime/gpu/split_allreduce.h"

#include <limits>
#include <utility>

#include "base/failpoint.h"
#include "collective/allreduce/allreduce.h"

namespace hvdtune {
namespace {

class SplitAllreduce {
 public:
  SplitAllreduce(GpuThread& gpu, Group& column, GpuTask bucket, const Setting& setting)
      : gpu_(gpu), column_(column), bucket_(std::move(bucket)), setting_(setting) {
    calls_ = std::exchange(bucket_.calls, {});
    for (const GpuCall& call : calls_) {
      const size_t end = packed_count(call.tensors);
      for (size_t begin = 0; begin < end; begin += host_chunk_elements(call.dtype)) {
        auto chunk = std::make_shared<HostChunk>();
        chunk->begin = begin;
        chunk->hosts = static_cast<size_t>(column.size());
        parts_.push_back({&call, std::move(chunk)});
      }
    }
    bucket_.begun_ns = std::make_shared<uint64_t>(std::numeric_limits<uint64_t>::max());
  }

  void run() {
    if (parts_.empty()) gpu_.enqueue(std::move(bucket_));
    for (size_t step = 0; step <= parts_.size() && !parts_.empty(); ++step) {
      if (step < parts_.size()) reduce_on_host(step);
      if (step > 0) finish(step - 1);
    }
  }

 private:
  struct Part {
    const GpuCall* call;
    std::shared_ptr<HostChunk> chunk;
    uint64_t reduced = 0;  // the task after which the share is there
  };

  // The first one waits for the tensors, which puts all others behind them as well, and the last
  // one completes the operations.
  GpuTask task_of(const Part& part, GpuStep step, bool is_end) {
    GpuTask task;
    if (is_end) {
      task = bucket_;
      bucket_.id.reset();
    }
    task.process_set = bucket_.process_set;
    task.within_host = true;
    task.completes = is_end && step == GpuStep::kGatherOnHost;
    task.calls = {*part.call};
    task.calls[0].step = step;
    task.calls[0].chunk = part.chunk;
    return task;
  }

  void reduce_on_host(size_t index) {
    parts_[index].reduced =
        gpu_.enqueue(task_of(parts_[index], GpuStep::kReduceOnHost, index == 0));
  }

  void finish(size_t index) {
    const Part& part = parts_[index];
    gpu_.await(part.reduced);
    FAILPOINT("gpu/between_hosts");
    combine(*part.call, *part.chunk);
    gpu_.enqueue(task_of(part, GpuStep::kGatherOnHost, index + 1 == parts_.size()));
  }

  void combine(const GpuCall& call, const HostChunk& chunk) {
    const Reduction how{travelling_type(call.dtype), travelling_op(call), 1.0, 1.0, column_.size()};
    Payload payload;
    payload.add(chunk.share->get(), chunk.share->get(), chunk.count * size_of(how.dtype));
    allreduce(column_, how, payload, setting_);
  }

  GpuThread& gpu_;
  Group& column_;
  GpuTask bucket_;
  const Setting& setting_;
  std::vector<GpuCall> calls_;
  std::vector<Part> parts_;
};

}  // namespace

void split_allreduce(GpuThread& gpu, Group& column, GpuTask bucket, const Setting& setting) {
  SplitAllreduce(gpu, column, std::move(bucket), setting).run();
}

}  // namespace hvdtune
