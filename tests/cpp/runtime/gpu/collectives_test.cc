// Collectives on a GPU against those on the host's memory, which have their own tests.
#include <numeric>
#include <random>

#include "values.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

void check_reductions(OpType kind, GpuBits bits) {
  GpuJob job({.size = 2, .hosts = bits == GpuBits::kExact ? 2 : 1, .bits = bits});
  job.each([kind](Runtime& runtime, const Device& device, int rank) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        if (!is_possible(dtype, op)) continue;
        for (const double scale : {1.0, 0.5}) {
          if (scale != 1.0 && !can_be_scaled(dtype)) continue;
          Request request = request_of(kind, std::string(name_of(dtype)), op);
          request.prescale = scale;
          request.postscale = 4 * scale;
          if (scale == 1.0) request.postscale = 1.0;
          const Values values = simple(dtype, 37, rank);
          std::vector<uint8_t> got = run_one(runtime, device, request, values);
          std::vector<uint8_t> wanted = run_on_host(runtime, request, values);
          // Of a reducescatter this rank has its rows only.
          const size_t rows = kind == OpType::kReducescatter ? (rank == 0 ? 19 : 18) : 37;
          got.resize(rows * size_of(dtype));
          wanted.resize(rows * size_of(dtype));
          CHECK(got == wanted);
        }
      }
    }
  });
}

}  // namespace

TEST(an_allreduce_has_the_values_of_the_hosts) {
  check_reductions(OpType::kAllreduce, GpuBits::kNccl);
}

TEST(an_exact_allreduce_has_them_too) { check_reductions(OpType::kAllreduce, GpuBits::kExact); }

TEST(a_reducescatter_with_uneven_rows_has_the_values_of_the_hosts) {
  check_reductions(OpType::kReducescatter, GpuBits::kNccl);
}

TEST(an_exact_reducescatter_has_them_too) {
  check_reductions(OpType::kReducescatter, GpuBits::kExact);
}

// The order of additions shows in most bits of these.
TEST(exact_bits_are_those_of_the_host_for_any_values_and_fusion) {
  GpuJob job({.size = 4, .hosts = 2, .bits = GpuBits::kExact});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    for (const DType dtype :
         {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kProduct}) {
        std::mt19937_64 random(static_cast<uint64_t>(rank) * 7919 + 17);
        std::normal_distribution<double> normal;
        std::vector<Values> values;
        std::vector<std::unique_ptr<GpuTensorPair>> tensors;
        std::vector<Submission> submissions;
        Request request = request_of(OpType::kAllreduce, "", op);
        request.prescale = 0.3;
        request.postscale = 1.7;
        for (const size_t count : {size_t{1}, size_t{1000}, size_t{0}, size_t{77}, size_t{3}}) {
          values.push_back(values_like(dtype, count, [&](size_t) { return normal(random); }));
          tensors.push_back(std::make_unique<GpuTensorPair>(device, values.back()));
          request.name = "x" + std::to_string(values.size());
          request.tensors = {{dtype, {static_cast<int64_t>(count)}}};
          submissions.push_back(on_gpu(device, request, {tensors.back()->memory()}));
        }
        const std::vector<Handle> handles = runtime.submit(std::move(submissions));
        for (const Handle handle : handles) finish(runtime, handle);
        for (size_t i = 0; i < values.size(); ++i) {
          request.name = "y" + std::to_string(i);
          CHECK(tensors[i]->output() == run_on_host(runtime, request, values[i]));
        }
      }
    }
  });
}

TEST(a_bucket_of_many_tensors_is_reduced_together) {
  GpuJob job({.size = 3});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    check_sums_of_many(runtime, device, rank, 3, false);
  });
}

TEST(a_group_of_several_dtypes_is_reduced_in_place) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const Values first = simple(DType::kFloat32, 5, rank);
    const Values second = simple(DType::kInt64, 4, rank);
    const GpuTensorPair floats(device, first);
    const GpuTensorPair integers(device, second);
    Request request = request_of(OpType::kAllreduce, "group");
    request.tensors = {{DType::kFloat32, {5}}, {DType::kInt64, {4}}};
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {floats.in_place(), integers.in_place()}));
    finish(runtime, runtime.submit(std::move(one))[0]);
    const Request plain = request_of(OpType::kAllreduce, "alone");
    CHECK(device.download(floats.in_place().output, 20) == run_on_host(runtime, plain, first));
    CHECK(device.download(integers.in_place().output, 32) == run_on_host(runtime, plain, second));
  });
}

TEST(a_broadcast_gives_all_what_its_root_has) {
  GpuJob job({.size = 3});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    Request request = request_of(OpType::kBroadcast, "b");
    request.root = 2;
    for (const DType dtype : {DType::kBfloat16, DType::kFloat8E4m3fn}) {
      const Values mine = simple(dtype, 11, rank);
      CHECK(run_one(runtime, device, request, mine) == simple(dtype, 11, 2).bytes);
    }
  });
}

TEST(an_allgather_concatenates_rows_that_differ_in_number) {
  GpuJob job({.size = 3});
  for (const std::vector<size_t>& rows :
       {std::vector<size_t>{2, 2, 2}, std::vector<size_t>{3, 0, 4}, std::vector<size_t>{0, 0, 0}}) {
    job.each([&](Runtime& runtime, const Device& device, int rank) {
      const auto row_value = [&](size_t who) {
        return values_like(DType::kFloat32, 2 * rows[who],
                           [&](size_t i) { return 100.0 * who + i; });
      };
      std::vector<uint8_t> expected;
      for (size_t who = 0; who < 3; ++who) {
        const Values part = row_value(who);
        expected.insert(expected.end(), part.bytes.begin(), part.bytes.end());
      }
      const auto mine = static_cast<size_t>(rank);
      const GpuTensorPair tensor(device, row_value(mine), expected.size());
      Request request = request_of(OpType::kAllgather, "g");
      request.tensors = {{DType::kFloat32, {static_cast<int64_t>(rows[mine]), 2}}};
      std::vector<Submission> one;
      one.push_back(on_gpu(device, request, {{tensor.memory().input, nullptr}}));
      const auto done = finish(runtime, runtime.submit(std::move(one))[0]);
      CHECK_EQ(done->results[0].shape[0], static_cast<int64_t>(expected.size() / 8));
      runtime.copy_result(*done, 0, tensor.memory().output, device.stream());
      CHECK(tensor.output() == expected);
    });
  }
}

TEST(an_alltoall_sends_each_rank_its_rows) {
  GpuJob job({.size = 3});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    // Rank r sends (r + peer) % 3 rows to a peer.
    const auto rows = [](int from, int to) { return (from + to) % 3; };
    Request request = request_of(OpType::kAlltoall, "a");
    request.splits = {rows(rank, 0), rows(rank, 1), rows(rank, 2)};
    request.tensors = {{DType::kInt16, {3}}};
    const Values mine = values_like(DType::kInt16, 3, [&](size_t i) { return 10.0 * rank + i; });
    std::vector<int16_t> expected;
    for (int from = 0; from < 3; ++from) {
      int at = 0;
      for (int to = 0; to < rank; ++to) at += rows(from, to);
      for (int i = 0; i < rows(from, rank); ++i) {
        expected.push_back(static_cast<int16_t>(10 * from + at + i));
      }
    }
    const Values wanted = values_of(DType::kInt16, expected);
    const GpuTensorPair tensor(device, mine, wanted.bytes.size());
    std::vector<Submission> one;
    one.push_back(on_gpu(device, request, {{tensor.memory().input, nullptr}}));
    const auto done = finish(runtime, runtime.submit(std::move(one))[0]);
    CHECK_EQ(done->numbers[1], rows(1, rank));
    runtime.copy_result(*done, 0, tensor.memory().output, device.stream());
    CHECK(tensor.output() == wanted.bytes);
  });
}

TEST(a_rank_that_has_joined_adds_identity_elements) {
  for (const GpuBits bits : {GpuBits::kNccl, GpuBits::kExact}) {
    GpuJob job({.size = 3, .bits = bits});
    job.each([](Runtime& runtime, const Device& device, int rank) {
      if (rank != 1) {
        for (const DType dtype : {DType::kInt8, DType::kFloat32}) {
          for (const double scale : {1.0, 2.0}) {
            Request request = request_of(OpType::kAllreduce, "late");
            request.prescale = scale;
            const Values mine = values_like(dtype, 20, [&](size_t) { return 3.0 + rank; });
            const Values sum = values_like(dtype, 20, [&](size_t) { return 8.0 * scale; });
            CHECK(run_one(runtime, device, request, mine) == sum.bytes);
            request = request_of(OpType::kAllreduce, "least", ReduceOp::kMin);
            request.postscale = scale;
            const Values least = values_like(dtype, 20, [&](size_t) { return 3.0 * scale; });
            CHECK(run_one(runtime, device, request, mine) == least.bytes);
          }
        }
      }
      finish(runtime, submit_one(runtime, plain(OpType::kJoin, "join")));
    });
  }
}

TEST(process_sets_reduce_over_their_own_ranks) {
  GpuJob job({.size = 3});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const auto add = [&](const std::vector<int64_t>& ranks) {
      const auto done = finish(runtime, submit_one(runtime, plain(OpType::kAddSet, "add", ranks)));
      return static_cast<uint32_t>(done->numbers[0]);
    };
    const uint32_t low = add({0, 1});
    const uint32_t high = add({1, 2});
    for (int step = 0; step < 5; ++step) {
      Request request = request_of(OpType::kAllreduce, "s");
      const Values mine = values_like(DType::kInt32, 6, [&](size_t) { return 1.0 + rank; });
      const auto check = [&](uint32_t set, double sum) {
        request.process_set = set;
        const Values wanted = values_like(DType::kInt32, 6, [&](size_t) { return sum; });
        CHECK(run_one(runtime, device, request, mine) == wanted.bytes);
      };
      if (rank < 2) check(low, 3.0);
      if (rank > 0) check(high, 5.0);
      check(kWorldSet, 6.0);
    }
    finish(runtime, submit_one(runtime, plain(OpType::kRemoveSet, "remove", {low})));
    Request request = request_of(OpType::kAllreduce, "after");
    const Values mine = values_like(DType::kInt32, 6, [&](size_t) { return 1.0; });
    const Values wanted = values_like(DType::kInt32, 6, [&](size_t) { return 3.0; });
    CHECK(run_one(runtime, device, request, mine) == wanted.bytes);
  });
}
