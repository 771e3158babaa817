// What a timeline says of operations on a GPU.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

TEST(an_operation_is_recorded_from_when_its_tensors_are_made_to_its_end_on_the_gpu) {
  const ScratchFile files[] = {ScratchFile("gpu-0"), ScratchFile("gpu-1")};
  GpuJob job({.size = 2});
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    record_with_clocks(runtime, device, files[rank]);
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
      return record.kind() == event_of(OpType::kAllreduce) && record.seq == kSumsForClocks;
    });
    CHECK(late != read.records.end());
    CHECK(late->begin_ns + kResidualNs >= made);
    CHECK(late->begin_ns + late->duration_ns() <= done);
  }
}

// What a stream is given after it waits until `opened`.
struct Gate {
  std::atomic<bool> opened = false;

  void close(const Device& device) {
    const auto wait = [](void* gate) {
      while (!static_cast<Gate*>(gate)->opened) std::this_thread::yield();
    };
    const Gpu::Scope scope(*device.gpu());
    CHECK_EQ(Fake::get().launch_host_function(device.stream(), wait, this), 0);
  }
};

// Of each rank, its records of one kind, in order.
using RecordsOfRanks = std::vector<std::vector<Record>>;

// Runs `body` on two ranks, after operations by which the clocks are known.
RecordsOfRanks stream_waits_of(const std::function<void(Runtime&, const Device&, int)>& body) {
  const ScratchFile files[] = {ScratchFile("waits-0"), ScratchFile("waits-1")};
  GpuJob job({.size = 2});
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    record_with_clocks(runtime, device, files[rank]);
    body(runtime, device, rank);
    device.await();
    run_one(runtime, device, sum_of("last"), floats(1.0F));  // by then all waits are recorded
    runtime.stop_timeline();
  });
  RecordsOfRanks result;
  for (const ScratchFile& file : files) {
    std::vector<Record>& waits = result.emplace_back();
    for (const Record& record : read_segment(file.path()).records) {
      if (record.kind() == EventKind::kStreamWait) waits.push_back(record);
    }
  }
  return result;
}

TEST(a_stream_that_has_nothing_else_to_do_waits_until_the_last_rank_has_made_its_tensor) {
  constexpr uint32_t kRounds = 20;
  std::vector<Gate> gates(kRounds);
  std::vector<uint64_t> opened_ns(kRounds);
  const RecordsOfRanks waits =
      stream_waits_of([&](Runtime& runtime, const Device& device, int rank) {
        for (uint32_t round = 0; round < kRounds; ++round) {
          if (rank == 1) gates[round].close(device);
          const GpuTensorPair tensor(device, floats(1.0F));
          std::vector<Submission> one;
          one.push_back(on_gpu(device, sum_of("late"), {tensor.memory()}));
          const Handle handle = runtime.submit(std::move(one))[0];
          CHECK(runtime.wait_on_stream(handle, device.stream(), std::chrono::seconds(60)));
          if (rank == 1) {
            opened_ns[round] = now_ns();
            gates[round].opened = true;
          }
          finish(runtime, handle);
        }
      });
  constexpr uint64_t kResidualNs = 1'000'000;  // as above
  bool began_before = false;
  for (uint32_t round = 0; round < kRounds; ++round) {
    const Record& idle = waits[0].at(round);
    CHECK_EQ(idle.bucket, waits[1].at(round).bucket);
    CHECK(idle.begin_ns + idle.duration_ns() + kResidualNs >= opened_ns[round]);
    // The other's stream comes to its wait when it has made the tensor.
    CHECK(waits[1][round].begin_ns + kResidualNs >= opened_ns[round]);
    began_before = began_before || idle.begin_ns < opened_ns[round];
  }
  CHECK(began_before);
}

TEST(a_stream_that_is_busy_until_a_bucket_is_done_waits_for_nothing) {
  Gate gates[2];
  std::atomic<int> done = 0;
  const RecordsOfRanks waits =
      stream_waits_of([&](Runtime& runtime, const Device& device, int rank) {
        const GpuTensorPair tensor(device, floats(1.0F));
        std::vector<Submission> one;
        one.push_back(on_gpu(device, sum_of("early"), {tensor.memory()}));
        const Handle handle = runtime.submit(std::move(one))[0];
        gates[rank].close(device);
        CHECK(runtime.wait_on_stream(handle, device.stream(), std::chrono::seconds(60)));
        finish(runtime, handle);  // on hvdtune's stream
        ++done;
        while (done < 2) std::this_thread::yield();
        gates[rank].opened = true;
      });
  for (const std::vector<Record>& of_rank : waits) {
    CHECK_EQ(of_rank.size(), size_t{1});
    CHECK_EQ(of_rank[0].duration_ns(), uint64_t{0});
  }
}

TEST(a_stream_waits_once_for_a_bucket_of_several_tensors) {
  constexpr size_t kTensors = 5;
  const RecordsOfRanks waits = stream_waits_of([&](Runtime& runtime, const Device& device, int) {
    std::vector<std::unique_ptr<GpuTensorPair>> tensors;
    std::vector<Submission> all;
    for (size_t i = 0; i < kTensors; ++i) {
      tensors.push_back(std::make_unique<GpuTensorPair>(device, floats(1.0F)));
      all.push_back(
          on_gpu(device, sum_of("tensor " + std::to_string(i)), {tensors.back()->memory()}));
    }
    const std::vector<Handle> handles = runtime.submit(std::move(all));
    for (const Handle handle : handles) {
      CHECK(runtime.wait_on_stream(handle, device.stream(), std::chrono::seconds(60)));
    }
    for (const Handle handle : handles) finish(runtime, handle);
  });
  for (const std::vector<Record>& of_rank : waits) {
    std::set<uint32_t> buckets;
    for (const Record& record : of_rank) CHECK(buckets.insert(record.bucket).second);
    CHECK(!buckets.empty());
  }
}
