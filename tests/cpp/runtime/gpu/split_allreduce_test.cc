// Allreduces of which NCCL carries out only what stays within a host.
#include <algorithm>
#include <cmath>
#include <random>

#include "base/clock.h"
#include "values.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kSplitSize = 4;

Setting hierarchical() {
  Setting setting;
  setting.hierarchical_allreduce = true;
  return setting;
}

GpuJobOptions two_hosts(int size = kSplitSize, GpuBits bits = GpuBits::kNccl) {
  return {.size = size, .hosts = 2, .bits = bits, .setting = hierarchical()};
}

// NCCL refuses every communicator of more ranks than a host has.
void keep_nccl_within_hosts() {
  std::string faults;
  for (int rank = 2; rank < kSplitSize; ++rank) {
    faults += "refuse-init code=3 rank=" + std::to_string(rank) + ";";
  }
  CHECK_EQ(Fake::get().set_faults(faults.c_str()), 0);
}

// Strikes, without any effect, where a communicator has this rank.
void watch_for_nccl_rank(int rank) {
  CHECK_EQ(Fake::get().set_faults(("late-peer ms=0 rank=" + std::to_string(rank)).c_str()), 0);
}

uint64_t watched_kernels() { return Fake::get().faults_hit("late-peer"); }

std::vector<uint8_t> sum_in_set(Runtime& runtime, const Device& device, uint32_t set, float value) {
  Request request = sum_of("in set " + std::to_string(set));
  request.process_set = set;
  return run_one(runtime, device, request, floats(value));
}

uint32_t add_set(Runtime& runtime, const std::vector<int64_t>& ranks) {
  const auto done = finish(runtime, submit_one(runtime, plain(OpType::kAddSet, "add", ranks)));
  return static_cast<uint32_t>(done->numbers[0]);
}

}  // namespace

TEST(a_split_allreduce_has_the_values_of_the_hosts) {
  GpuJob job(two_hosts());
  keep_nccl_within_hosts();
  job.each([](Runtime& runtime, const Device& device, int rank) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        if (!is_possible(dtype, op)) continue;
        for (const double scale : {1.0, 0.5}) {
          if (scale != 1.0 && !can_be_scaled(dtype)) continue;
          Request request = request_of(OpType::kAllreduce, std::string(name_of(dtype)), op);
          request.prescale = scale;
          request.postscale = scale == 1.0 ? 1.0 : 2.0;
          for (const size_t count : {size_t{37}, size_t{1}, size_t{0}}) {
            const Values values = simple(dtype, count, rank);
            CHECK(run_one(runtime, device, request, values) ==
                  run_on_host(runtime, request, values));
          }
        }
      }
    }
  });
}

// NCCL rounds at every step within a host, so that only most of the bits are the same.
TEST(a_split_allreduce_of_any_values_is_as_near_as_nccls_own) {
  GpuJob job(two_hosts());
  keep_nccl_within_hosts();
  job.each([](Runtime& runtime, const Device& device, int rank) {
    constexpr size_t kCount = 5000;
    std::vector<float> inputs[kSplitSize];
    for (int who = 0; who < kSplitSize; ++who) {
      std::mt19937_64 random(static_cast<uint64_t>(who) * 7919 + 17);
      std::normal_distribution<float> normal;
      for (size_t i = 0; i < kCount; ++i) inputs[who].push_back(normal(random));
    }
    Request request = request_of(OpType::kAllreduce, "any", ReduceOp::kAverage);
    request.postscale = 1.7;
    const Values mine = values_of(DType::kFloat32, inputs[rank]);
    const std::vector<uint8_t> bytes = run_one(runtime, device, request, mine);
    const auto* result = reinterpret_cast<const float*>(bytes.data());
    for (size_t i = 0; i < kCount; ++i) {
      double sum = 0;
      double size = 0;
      for (const auto& input : inputs) {
        sum += static_cast<double>(input[i]);
        size += std::abs(static_cast<double>(input[i]));
      }
      CHECK(std::abs(static_cast<double>(result[i]) - 1.7 * sum / kSplitSize) <= 1e-6 * size);
    }
  });
}

// More than two chunks, with tensors across their borders.
TEST(a_split_bucket_of_several_chunks_is_reduced) {
  constexpr size_t kChunk = kHostChunkBytes / sizeof(float);
  GpuJob job(two_hosts());
  keep_nccl_within_hosts();
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const std::vector<size_t> counts = {kChunk - 5, 1, 0, kChunk + 33, 77};
    const auto values = [&](size_t which, float factor, float shift) {
      std::vector<float> elements(counts[which]);
      for (size_t i = 0; i < elements.size(); ++i) {
        elements[i] = factor * static_cast<float>((i + which) % 1001) + shift;
      }
      return values_of(DType::kFloat32, elements);
    };
    std::vector<std::unique_ptr<GpuTensorPair>> tensors;
    std::vector<TensorMemory> memory;
    Request request = request_of(OpType::kAllreduce, "group");
    for (size_t which = 0; which < counts.size(); ++which) {
      const Values mine = values(which, 1.0F, static_cast<float>(rank));
      tensors.push_back(std::make_unique<GpuTensorPair>(device, mine));
      memory.push_back(tensors.back()->memory());
      request.tensors.push_back({DType::kFloat32, {static_cast<int64_t>(counts[which])}});
    }
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, std::move(memory)));
    const Handle handle = runtime.submit(std::move(one))[0];
    // The caller's stream is behind it, which is all that is asked for.
    CHECK(runtime.wait_on_stream(handle, device.stream(), std::chrono::seconds(60)));
    for (size_t which = 0; which < counts.size(); ++which) {
      CHECK(tensors[which]->output() == values(which, 4.0F, 6.0F).bytes);
    }
    finish(runtime, handle);
  });
}

TEST(a_split_bucket_of_many_tensors_is_reduced_together) {
  GpuJob job(two_hosts());
  keep_nccl_within_hosts();
  job.each([](Runtime& runtime, const Device& device, int rank) {
    check_sums_of_many(runtime, device, rank, 4, true);
  });
}

TEST(a_split_group_of_several_dtypes_is_reduced) {
  GpuJob job(two_hosts());
  keep_nccl_within_hosts();
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const Values first = simple(DType::kFloat16, 5, rank);
    const Values second = simple(DType::kInt8, 40, rank);
    const GpuTensorPair halves(device, first);
    const GpuTensorPair bytes(device, second);
    Request request = request_of(OpType::kAllreduce, "group");
    request.tensors = {{DType::kFloat16, {5}}, {DType::kInt8, {40}}};
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {halves.memory(), bytes.memory()}));
    finish(runtime, runtime.submit(std::move(one))[0]);
    const Request alone = request_of(OpType::kAllreduce, "alone");
    CHECK(halves.output() == run_on_host(runtime, alone, first));
    CHECK(bytes.output() == run_on_host(runtime, alone, second));
  });
}

TEST(a_rank_that_has_joined_takes_part_in_both_halves_of_a_split_allreduce) {
  GpuJob job(two_hosts());
  keep_nccl_within_hosts();
  job.each([](Runtime& runtime, const Device& device, int rank) {
    if (rank != 2) {
      for (const DType dtype : {DType::kInt8, DType::kFloat32}) {
        Request request = request_of(OpType::kAllreduce, "late");
        request.prescale = 2.0;
        const Values mine = values_like(dtype, 20, [&](size_t) { return 3.0 + rank; });
        const Values sum = values_like(dtype, 20, [&](size_t) { return 26.0; });
        CHECK(run_one(runtime, device, request, mine) == sum.bytes);
        request = request_of(OpType::kAllreduce, "least", ReduceOp::kMin);
        const Values least = values_like(dtype, 20, [&](size_t) { return 3.0; });
        CHECK(run_one(runtime, device, request, mine) == least.bytes);
      }
    }
    finish(runtime, submit_one(runtime, plain(OpType::kJoin, "join")));
  });
}

// Two that are split, of which one goes before the job ends, and one with a single rank on each
// host, which is not.
TEST(process_sets_are_split_where_their_hosts_are_crowded) {
  GpuJob job(two_hosts(6));
  watch_for_nccl_rank(3);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const uint32_t corners = add_set(runtime, {0, 2, 3, 5});
    const uint32_t pair = add_set(runtime, {1, 4});
    const bool at_corner = rank != 1 && rank != 4;
    for (int step = 0; step < 4; ++step) {
      const auto value = static_cast<float>(rank);
      if (at_corner) {
        CHECK(sum_in_set(runtime, device, corners, value) == floats(10.0F).bytes);
      } else {
        CHECK(sum_in_set(runtime, device, pair, value) == floats(5.0F).bytes);
      }
      CHECK(sum_in_set(runtime, device, kWorldSet, value) == floats(15.0F).bytes);
    }
    finish(runtime, submit_one(runtime, plain(OpType::kRemoveSet, "remove", {corners})));
    CHECK(sum_in_set(runtime, device, kWorldSet, 1.0F) == floats(6.0F).bytes);
  });
  CHECK_EQ(watched_kernels(), 0U);
}

TEST(hosts_with_unequal_numbers_of_ranks_are_not_split) {
  GpuJob job(two_hosts(3));
  watch_for_nccl_rank(2);
  job.each([](Runtime& runtime, const Device& device, int) {
    CHECK(sum_in_set(runtime, device, kWorldSet, 2.0F) == floats(6.0F).bytes);
  });
  CHECK_EQ(watched_kernels(), 1U);
}

TEST(exact_bits_are_kept_where_the_knob_asks_for_a_split) {
  GpuJob job(two_hosts(kSplitSize, GpuBits::kExact));
  job.each([](Runtime& runtime, const Device& device, int rank) {
    for (const DType dtype : {DType::kBfloat16, DType::kFloat32}) {
      std::mt19937_64 random(static_cast<uint64_t>(rank) + 5);
      std::normal_distribution<double> normal;
      const Values mine = values_like(dtype, 1000, [&](size_t) { return normal(random); });
      const Request request = request_of(OpType::kAllreduce, "exact", ReduceOp::kAverage);
      CHECK(run_one(runtime, device, request, mine) == run_on_host(runtime, request, mine));
    }
  });
}

// A bucket that only some ranks split would hang.
TEST(the_knob_splits_and_joins_allreduces_of_a_running_job) {
  GpuJob job({.size = kSplitSize, .hosts = 2});
  watch_for_nccl_rank(kSplitSize - 1);
  for (const bool split : {false, true, false, true}) {
    Setting setting;
    setting.hierarchical_allreduce = split;
    const auto step = [](Runtime& runtime, const Device& device) {
      std::vector<std::unique_ptr<GpuTensorPair>> tensors;
      std::vector<Submission> submissions;
      for (int i = 0; i < 8; ++i) {
        tensors.push_back(std::make_unique<GpuTensorPair>(device, floats(1.0F)));
        submissions.push_back(
            on_gpu(device, sum_of("x" + std::to_string(i)), {tensors.back()->memory()}));
      }
      for (const Handle handle : runtime.submit(std::move(submissions))) finish(runtime, handle);
      for (const auto& tensor : tensors) CHECK(tensor->output() == floats(4.0F).bytes);
    };
    const uint32_t version = job[0].propose(setting);
    bool adopted = false;
    for (int turn = 0; turn < 50 && !adopted; ++turn) {
      job.each([&](Runtime& runtime, const Device& device, int) { step(runtime, device); });
      adopted = job[kSplitSize - 1].version() == version;
    }
    CHECK(adopted);
    const uint64_t before = watched_kernels();
    job.each([&](Runtime& runtime, const Device& device, int) { step(runtime, device); });
    CHECK_EQ(watched_kernels() > before, !split);
  }
}

TEST(a_split_allreduce_without_memory_for_it_names_the_rank) {
  GpuJob job(two_hosts());
  job.each([](Runtime& runtime, const Device& device, int rank) {
    CHECK(sum_in_set(runtime, device, kWorldSet, 1.0F) == floats(4.0F).bytes);
    const Values many = values_of(DType::kFloat32, std::vector<float>(50'000, 1.0F));
    const GpuTensorPair tensor(device, many);
    finish(runtime, submit_one(runtime, barrier_of("all have theirs")));
    if (rank == 3) Fake::get().set_faults("out-of-memory device=3");
    finish(runtime, submit_one(runtime, barrier_of("it is set")));
    Request request = request_of(OpType::kAllreduce, "large");
    request.tensors = {{DType::kFloat32, {50'000}}};
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {tensor.memory()}));
    const Error error = failure_of(runtime, runtime.submit(std::move(one))[0]);
    CHECK_EQ(error.rank(), 3);
    CHECK(contains(error.what(), "rank 3 failed: cannot allocate 1 MiB on GPU 3"));
  });
}

TEST(a_split_allreduce_is_recorded_once_from_its_tensors_to_its_end) {
  const ScratchFile files[] = {ScratchFile("split-0"), ScratchFile("split-1"),
                               ScratchFile("split-2"), ScratchFile("split-3")};
  constexpr int64_t kCount = kHostChunkBytes / sizeof(float) + 1;
  GpuJob job(two_hosts());
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(kSplitSize);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    record_with_clocks(runtime, device, files[rank]);
    tensors[static_cast<size_t>(rank)] = std::make_unique<GpuTensorPair>(
        device, values_of(DType::kFloat32, std::vector<float>(kCount, 1.0F)));
  });
  Fake::get().pause(1);
  std::vector<Handle> handles(kSplitSize);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    Request request = request_of(OpType::kAllreduce, "late");
    request.tensors = {{DType::kFloat32, {kCount}}};
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {tensors[index]->memory()}));
    handles[index] = runtime.submit(std::move(one))[0];
  });
  const uint64_t made = now_ns();  // at the earliest
  Fake::get().pause(0);
  job.each([&](Runtime& runtime, const Device&, int rank) {
    finish(runtime, handles[static_cast<size_t>(rank)]);
  });
  const uint64_t done = now_ns();  // at the latest
  job.each([](Runtime& runtime, const Device&, int) { runtime.stop_timeline(); });
  constexpr uint64_t kResidualNs = 1'000'000;
  for (const ScratchFile& file : files) {
    const ReadSegment read = read_segment(file.path());
    const auto is_late = [](const Record& record) {
      return record.kind() == event_of(OpType::kAllreduce) && record.seq == kSumsForClocks;
    };
    CHECK_EQ(std::ranges::count_if(read.records, is_late), 1);
    const Record late = *std::ranges::find_if(read.records, is_late);
    CHECK(late.begin_ns + kResidualNs >= made);
    CHECK(late.begin_ns + late.duration_ns() <= done);
    // What goes between hosts lies within it.
    const auto is_exchange = [&](const Record& record) {
      return record.kind() == EventKind::kExchange && record.bucket == late.bucket;
    };
    CHECK(std::ranges::any_of(read.records, is_exchange));
    for (const Record& record : read.records) {
      if (!is_exchange(record)) continue;
      CHECK(record.begin_ns + kResidualNs >= late.begin_ns);
      CHECK(record.begin_ns <= late.begin_ns + late.duration_ns() + kResidualNs);
    }
  }
}
