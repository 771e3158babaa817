// Collectives through whole runtimes.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

struct Shape {
  int size;
  int hosts;
  bool shared_memory;
};

constexpr Shape kShapes[] = {{1, 1, true}, {2, 1, true}, {3, 1, false}, {4, 2, true}, {4, 4, true},
                             {5, 2, true}, {6, 3, true}, {4, 2, false}, {6, 2, true}, {3, 1, true}};

void on_all_shapes(const std::function<void(Runtime&, int, int)>& body) {
  for (const Shape& shape : kShapes) {
    Job job({.size = shape.size, .hosts = shape.hosts, .shared_memory = shape.shared_memory});
    job.each([&](Runtime& runtime, int rank) { body(runtime, rank, shape.size); });
  }
}

}  // namespace

TEST(allreduce_sums_averages_and_scales) {
  on_all_shapes([](Runtime& runtime, int rank, int size) {
    std::vector<float> sum = {1.0F, static_cast<float>(rank)};
    allreduce_now(runtime, "sum", sum);
    CHECK_EQ(sum[0], static_cast<float>(size));
    CHECK_EQ(sum[1], static_cast<float>(size * (size - 1) / 2));
    std::vector<double> average = {static_cast<double>(rank)};
    allreduce_now(runtime, "average", average, ReduceOp::kAverage);
    CHECK_EQ(average[0], (size - 1) / 2.0);
    std::vector<int64_t> largest = {rank, -rank};
    allreduce_now(runtime, "max", largest, ReduceOp::kMax);
    CHECK_EQ(largest[0], size - 1);
    CHECK_EQ(largest[1], 0);
    std::vector<float> input = {3.0F};
    std::vector<float> output = {0.0F};
    Draft scaled = allreduce_of("scaled", input);
    scaled.output = output.data();
    scaled.request.prescale = 2.0;
    scaled.request.postscale = 0.5;
    finish(runtime, submit_one(runtime, scaled));
    CHECK_EQ(output[0], 3.0F * static_cast<float>(size));
    CHECK_EQ(input[0], 3.0F);
  });
}

TEST(broadcast_reaches_all_from_any_root) {
  on_all_shapes([](Runtime& runtime, int rank, int size) {
    for (int root = 0; root < size; ++root) {
      std::vector<int32_t> values(70'000, rank);
      Draft draft = allreduce_of("b" + std::to_string(root), values);
      draft.request.op = OpType::kBroadcast;
      draft.request.root = root;
      finish(runtime, submit_one(runtime, draft));
      CHECK_EQ(values.front(), root);
      CHECK_EQ(values.back(), root);
    }
  });
}

TEST(allgather_concatenates_blocks_of_different_size) {
  on_all_shapes([](Runtime& runtime, int rank, int size) {
    for (int round = 0; round < 3; ++round) {
      // Rank 1 has nothing; the same call again is answered from the cache.
      const int rows = rank == 1 ? 0 : rank + 1;
      std::vector<int32_t> values(static_cast<size_t>(rows * 2), rank);
      Draft draft = allreduce_of("g", values);
      draft.request.op = OpType::kAllgather;
      draft.request.tensors[0].shape = {rows, 2};
      draft.output = nullptr;
      const auto operation = finish(runtime, submit_one(runtime, draft));
      std::vector<int32_t> expected;
      for (int other = 0; other < size; ++other) {
        expected.insert(expected.end(), static_cast<size_t>(other == 1 ? 0 : 2 * (other + 1)),
                        other);
      }
      const int64_t total = static_cast<int64_t>(expected.size()) / 2;
      CHECK(operation->results[0].shape == std::vector<int64_t>({total, 2}));
      CHECK_EQ(std::memcmp(operation->results[0].bytes.get(), expected.data(), expected.size() * 4),
               0);
    }
  });
}

TEST(a_barrier_holds_until_the_last_rank_comes) {
  std::atomic<int> arrived{0};
  Job job({.size = 3});
  job.each([&](Runtime& runtime, int) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      finish(runtime, submit_one(runtime, barrier_of("barrier")));
      CHECK(arrived.load() >= 3 * round);
      finish(runtime, submit_one(runtime, barrier_of("again")));
    }
  });
}

TEST(tensors_without_elements_and_without_dimensions_pass) {
  on_all_shapes([](Runtime& runtime, int, int size) {
    for (int round = 0; round < 2; ++round) {
      std::vector<float> none;
      allreduce_now(runtime, "none", none);
      std::vector<double> scalar = {2.0};
      Draft draft = allreduce_of("scalar", scalar);
      draft.request.tensors[0].shape = {};
      finish(runtime, submit_one(runtime, draft));
      CHECK_EQ(scalar[0], 2.0 * size);
      Draft gathered = allreduce_of("gathered", none);
      gathered.request.op = OpType::kAllgather;
      gathered.request.tensors[0].shape = {0, 5};
      const auto operation = finish(runtime, submit_one(runtime, gathered));
      CHECK(operation->results[0].shape == std::vector<int64_t>({0, 5}));
      Draft nothing = allreduce_of("nothing", none);
      nothing.request.op = OpType::kBroadcast;
      finish(runtime, submit_one(runtime, nothing));
    }
  });
}

TEST(ranks_may_submit_many_tensors_in_any_order) {
  Job job({.size = 4, .hosts = 2});
  job.each([](Runtime& runtime, int rank) {
    constexpr int kTensors = 200;
    std::mt19937 random(static_cast<unsigned>(rank));
    for (int step = 0; step < 5; ++step) {
      std::vector<std::vector<float>> values;
      std::vector<int> order;
      for (int i = 0; i < kTensors; ++i) {
        values.emplace_back(static_cast<size_t>(1 + i * 7 % 500), static_cast<float>(i));
        order.push_back(i);
      }
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::pair<int, Handle>> handles;
      for (const int i : order) {
        auto& tensor = values[static_cast<size_t>(i)];
        handles.emplace_back(i, submit_one(runtime, allreduce_of("t" + std::to_string(i), tensor)));
      }
      std::shuffle(handles.begin(), handles.end(), random);
      for (const auto& [i, handle] : handles) {
        finish(runtime, handle);
        for (const float value : values[static_cast<size_t>(i)]) {
          CHECK_EQ(value, 4.0F * static_cast<float>(i));
        }
      }
    }
  });
}

TEST(a_thousand_tiny_tensors_a_step_come_from_the_cache) {
  JobOptions options{.size = 3};
  Job job(options);
  job.each([](Runtime& runtime, int) {
    constexpr size_t kTensors = 1000;
    constexpr int kSteps = 10;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> values(kTensors, {1.0F, 2.0F});
      std::vector<Draft> group;
      for (size_t i = 0; i < kTensors; ++i) {
        group.push_back(allreduce_of("tiny." + std::to_string(i), values[i]));
      }
      for (const Handle handle : submit_all(runtime, group)) finish(runtime, handle);
      for (const auto& tensor : values) CHECK_EQ(tensor[1], 6.0F);
      runtime.mark_step();
    }
    const CycleCounts counts = runtime.counts();
    CHECK_EQ(counts.tensors, kTensors * kSteps);
    CHECK_EQ(counts.full_announcements, kTensors);
    CHECK_EQ(counts.cached_announcements, kTensors * (kSteps - 1));
    CHECK(counts.buckets < kTensors);
  });
}

TEST(several_threads_of_a_rank_may_call_at_once) {
  Job job({.size = 2});
  job.each([](Runtime& runtime, int) {
    std::vector<std::jthread> threads;
    for (int caller = 0; caller < 4; ++caller) {
      threads.emplace_back([&runtime, caller] {
        std::vector<float> values(100);
        for (int step = 0; step < 100; ++step) {
          values.assign(100, static_cast<float>(step));
          allreduce_now(runtime, "caller." + std::to_string(caller), values);
          CHECK_EQ(values[99], 2.0F * static_cast<float>(step));
        }
      });
    }
  });
}

TEST(polling_ends_without_a_wait) {
  Job job({.size = 2});
  job.each([](Runtime& runtime, int) {
    std::vector<float> values = {1.0F};
    const Handle handle = submit_one(runtime, allreduce_of("polled", values));
    while (!runtime.poll(handle)) std::this_thread::yield();
    runtime.release(handle);
    CHECK_EQ(values[0], 2.0F);
    CHECK_THROWS(ErrorCode::kUsage, runtime.poll(handle));
    CHECK_THROWS(ErrorCode::kUsage, runtime.wait(handle, std::chrono::seconds(1)));
  });
}

TEST(a_small_cache_that_thrashes_changes_no_result) {
  for (const int64_t capacity : {0, 1, 7}) {
    JobOptions options{.size = 3};
    options.setting.cache_capacity = capacity;
    Job job(options);
    job.each([](Runtime& runtime, int rank) {
      std::mt19937 random(static_cast<unsigned>(rank));
      for (int step = 0; step < 30; ++step) {
        std::vector<std::vector<float>> values;
        std::vector<size_t> order;
        for (size_t i = 0; i < 12; ++i) {
          // Some shapes change now and then, on every rank alike.
          values.emplace_back(10 + (i % 3 == 0 ? static_cast<size_t>(step / 4) : 0), 1.0F);
          order.push_back(i);
        }
        std::shuffle(order.begin(), order.end(), random);
        std::vector<Handle> handles;
        for (const size_t i : order) {
          handles.push_back(
              submit_one(runtime, allreduce_of("thrash." + std::to_string(i), values[i])));
        }
        for (const Handle handle : handles) finish(runtime, handle);
        for (const auto& tensor : values) CHECK_EQ(tensor.back(), 3.0F);
      }
    });
  }
}
