// What a timeline says of operations on a GPU.
#include <algorithm>

#include "base/clock.h"
#include "gpu_job.h"
#include "timeline/reading.h"

using namespace hvdtune;
using namespace hvdtune::testing;

constexpr uint32_t kFirst = 60;

TEST(an_operation_is_recorded_from_when_its_tensors_are_made_to_its_end_on_the_gpu) {
  const ScratchFile files[] = {ScratchFile("gpu-0"), ScratchFile("gpu-1")};
  GpuJob job({.size = 2});
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    TimelineOptions options;
    options.path = files[rank].path();
    runtime.start_timeline(options);
    // The fake's streams are late at random: by then the clocks have been compared.
    for (uint32_t i = 0; i < kFirst; ++i) {
      run_one(runtime, device, sum_of("first"), floats(1.0F));
    }
  });
  Fake::get().pause(1);
  std::vector<Handle> handles(2);
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(2);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = std::make_unique<GpuTensorPair>(device, floats(1.0F));
    std::vector<Submission> one;
    one.push_back(on_gpu(device, sum_of("late"), {tensors[index]->memory()}));
    handles[index] = runtime.submit(std::move(one))[0];
    CHECK(runtime.wait_on_stream(handles[index], device.stream(), std::chrono::seconds(60)));
  });
  const uint64_t made = now_ns();  // at the earliest
  Fake::get().pause(0);
  job.each([&](Runtime& runtime, const Device&, int rank) {
    finish(runtime, handles[static_cast<size_t>(rank)]);
  });
  const uint64_t done = now_ns();  // at the latest
  job.each([](Runtime& runtime, const Device&, int) { runtime.stop_timeline(); });
  // The fake's clock is the host's, and comparing them takes at most a millisecond.
  constexpr uint64_t kResidualNs = 1'000'000;
  for (const ScratchFile& file : files) {
    const ReadSegment read = read_segment(file.path());
    const auto late = std::ranges::find_if(read.records, [&](const Record& record) {
      return record.kind() == event_of(OpType::kAllreduce) && record.seq == kFirst;
    });
    CHECK(late != read.records.end());
    CHECK(late->begin_ns + kResidualNs >= made);
    CHECK(late->begin_ns + late->duration_ns() <= done);
  }
}
