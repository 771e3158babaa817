// Process sets, groups and joins through whole runtimes, in stars and in trees.
#include <algorithm>
#include <thread>

#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

uint32_t add_set(Runtime& runtime, const std::vector<int64_t>& ranks) {
  const auto done = finish(runtime, submit_one(runtime, plain(OpType::kAddSet, "add", ranks)));
  return static_cast<uint32_t>(done->numbers[0]);
}

void sum_in(Runtime& runtime, uint32_t set, const std::string& name, std::vector<float>& values) {
  Draft draft = allreduce_of(name, values);
  draft.request.process_set = set;
  finish(runtime, submit_one(runtime, draft));
}

bool is_in(Runtime& runtime, uint32_t set) {
  return runtime.process_sets()->includes(set, runtime.topology().rank);
}

}  // namespace

TEST(sets_that_overlap_reduce_over_their_own_ranks) {
  for (const bool shared_memory : {true, false}) {
    for (const int fanout : {1, 2, 16}) {
      Job job({.size = 6, .hosts = 2, .shared_memory = shared_memory, .control_fanout = fanout});
      job.each([](Runtime& runtime, int rank) {
        const uint32_t even = add_set(runtime, {0, 2, 4});
        const uint32_t high = add_set(runtime, {3, 4, 5});
        CHECK(even != high);
        for (int step = 0; step < 30; ++step) {
          std::vector<float> values(1000, static_cast<float>(rank));
          if (is_in(runtime, even)) {
            sum_in(runtime, even, "x", values);
            CHECK_EQ(values[999], 6.0F);
          }
          values.assign(1000, static_cast<float>(rank));
          if (is_in(runtime, high)) {
            sum_in(runtime, high, "x", values);
            CHECK_EQ(values[999], 12.0F);
          }
          values.assign(1000, 1.0F);
          sum_in(runtime, kWorldSet, "x", values);
          CHECK_EQ(values[0], 6.0F);
        }
      });
    }
  }
}

TEST(a_rank_outside_a_set_cannot_use_it) {
  Job job({.size = 3});
  job.each([](Runtime& runtime, int rank) {
    const uint32_t set = add_set(runtime, {0, 2});
    std::vector<float> values(4, 1.0F);
    Draft draft = allreduce_of("x", values);
    draft.request.process_set = set;
    if (rank == 1) {
      CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
    } else {
      finish(runtime, submit_one(runtime, draft));
      CHECK_EQ(values[0], 2.0F);
    }
    draft.request.process_set = 77;
    CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
  });
}

TEST(a_set_that_is_removed_fails_what_is_in_flight_there) {
  Job job({.size = 4, .control_fanout = 1});
  job.each([](Runtime& runtime, int rank) {
    const uint32_t set = add_set(runtime, {1, 3});
    std::vector<float> values(4, 1.0F);
    Draft draft = allreduce_of("left over", values);
    draft.request.process_set = set;
    const Handle handle = rank == 3 ? submit_one(runtime, draft) : 0;
    finish(runtime, submit_one(runtime, plain(OpType::kRemoveSet, "remove", {set})));
    if (rank == 3) CHECK(contains(failure_of(runtime, handle).what(), "was removed"));
    CHECK_THROWS(ErrorCode::kUsage, submit_one(runtime, draft));
    const uint32_t again = add_set(runtime, {1, 3});
    CHECK(again != set);
    if (is_in(runtime, again)) {
      sum_in(runtime, again, "left over", values);
      CHECK_EQ(values[0], 2.0F);
    }
  });
}

TEST(sets_that_the_ranks_disagree_about_are_refused) {
  Job job({.size = 3});
  job.each([](Runtime& runtime, int rank) {
    const std::vector<int64_t> ranks =
        rank == 2 ? std::vector<int64_t>{0} : std::vector<int64_t>{1};
    const Error other =
        failure_of(runtime, submit_one(runtime, plain(OpType::kAddSet, "add", ranks)));
    CHECK(other.code() == ErrorCode::kMismatch);
    add_set(runtime, {0, 1});
    const Error twice =
        failure_of(runtime, submit_one(runtime, plain(OpType::kAddSet, "add", {0, 1})));
    CHECK(contains(twice.what(), "already has these ranks"));
  });
}

TEST(a_group_of_several_dtypes_is_one_operation) {
  Job job({.size = 4, .hosts = 2});
  job.each([](Runtime& runtime, int rank) {
    for (int step = 0; step < 3; ++step) {
      std::vector<float> floats(1000, 1.0F);
      std::vector<int64_t> integers(7, rank);
      std::vector<float> more(3, 2.0F);
      Draft draft = allreduce_of("group", floats);
      draft.request.tensors.push_back({DType::kInt64, {7}});
      draft.request.tensors.push_back({DType::kFloat32, {3}});
      Submission submission = draft.done();
      const auto add = [&](auto& values) {
        auto* at = reinterpret_cast<uint8_t*>(values.data());
        submission.memory.push_back({at, at});
      };
      add(integers);
      add(more);
      std::vector<Submission> one;
      one.push_back(std::move(submission));
      finish(runtime, runtime.submit(std::move(one))[0]);
      CHECK_EQ(floats[999], 4.0F);
      CHECK_EQ(integers[6], 6);
      CHECK_EQ(more[2], 8.0F);
    }
    CHECK_EQ(runtime.counts().tensors, 3U);
  });
}

TEST(a_group_that_differs_in_one_tensor_fails_as_a_whole) {
  Job job({.size = 2});
  job.each([](Runtime& runtime, int rank) {
    std::vector<float> values(8, 1.0F);
    Draft draft = allreduce_of("group", values);
    draft.request.tensors.assign(3, {DType::kFloat32, {2}});
    if (rank == 1) draft.request.tensors[2].shape = {1};
    Submission submission = draft.done();
    submission.memory.assign(3, submission.memory[0]);
    std::vector<Submission> one;
    one.push_back(std::move(submission));
    const Error error = failure_of(runtime, runtime.submit(std::move(one))[0]);
    CHECK(contains(error.what(), "tensor 2 of the group"));
    CHECK_EQ(values[0], 1.0F);
  });
}

TEST(a_rank_that_has_joined_adds_nothing_to_the_others_work) {
  for (const int fanout : {1, 2, 16}) {
    Job job({.size = 5, .hosts = 2, .control_fanout = fanout});
    job.each([](Runtime& runtime, int rank) {
      for (int epoch = 0; epoch < 3; ++epoch) {
        // Rank r has r + 1 steps of data.
        for (int step = 0; step <= rank; ++step) {
          std::vector<float> sum(100, 1.0F);
          std::vector<int32_t> least(3, 5 + rank);
          std::vector<Draft> drafts = {allreduce_of("sum", sum),
                                       allreduce_of("least", least, ReduceOp::kMin)};
          std::vector<int32_t> own(2, rank);
          Draft gathered = allreduce_of("gathered", own);
          gathered.request.op = OpType::kAllgather;
          drafts.push_back(gathered);
          const std::vector<Handle> handles = submit_all(runtime, drafts);
          finish(runtime, handles[0]);
          finish(runtime, handles[1]);
          const auto done = finish(runtime, handles[2]);
          CHECK_EQ(sum[99], static_cast<float>(5 - step));
          CHECK_EQ(least[2], 5 + step);
          CHECK_EQ(done->results[0].shape[0], 2 * (5 - step));
        }
        const auto joined = finish(runtime, submit_one(runtime, plain(OpType::kJoin, "join")));
        CHECK_EQ(joined->numbers[0], 4);
      }
    });
  }
}

TEST(what_needs_the_data_of_a_joined_rank_is_refused) {
  Job job({.size = 3});
  job.each([](Runtime& runtime, int rank) {
    if (rank != 1) {
      std::vector<float> values(4, 1.0F);
      Draft draft = allreduce_of("b", values);
      draft.request.op = OpType::kBroadcast;
      draft.request.root = 1;
      const Error error = failure_of(runtime, submit_one(runtime, draft));
      CHECK(contains(error.what(), "needs data from rank 1, which joined before"));
      draft.request.root = 2;
      values.assign(4, static_cast<float>(rank));
      finish(runtime, submit_one(runtime, draft));
      CHECK_EQ(values[3], 2.0F);
    }
    finish(runtime, submit_one(runtime, plain(OpType::kJoin, "join")));
  });
}

TEST(alltoall_and_reducescatter_divide_unevenly) {
  for (const bool shared_memory : {true, false}) {
    Job job({.size = 3, .shared_memory = shared_memory});
    job.each([](Runtime& runtime, int rank) {
      for (int round = 0; round < 3; ++round) {
        // Rank r sends j rows to rank j.
        std::vector<int32_t> rows(3, rank);
        Draft draft = allreduce_of("all", rows);
        draft.request.op = OpType::kAlltoall;
        draft.request.splits = {0, 1, 2};
        const auto done = finish(runtime, submit_one(runtime, draft));
        CHECK(done->numbers == std::vector<int64_t>(3, rank));
        CHECK_EQ(done->results[0].shape[0], 3 * rank);
        std::vector<int32_t> got(static_cast<size_t>(3 * rank));
        std::copy_n(done->results[0].bytes.get(), got.size() * 4,
                    reinterpret_cast<uint8_t*>(got.data()));
        for (size_t i = 0; i < got.size(); ++i) {
          CHECK_EQ(got[i], static_cast<int32_t>(i) / rank);
        }

        std::vector<float> input = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
        std::vector<float> output(rank < 2 ? 4 : 2);
        Draft scattered = allreduce_of("scattered", input);
        scattered.request.op = OpType::kReducescatter;
        scattered.request.tensors[0].shape = {5, 2};
        scattered.output = output.data();
        finish(runtime, submit_one(runtime, scattered));
        CHECK_EQ(output[0], 3.0F * static_cast<float>(4 * rank));
        CHECK_EQ(output.back(), 3.0F * (rank < 2 ? static_cast<float>(4 * rank + 3) : 9.0F));
      }
    });
  }
}

TEST(a_deep_tree_trains_and_ends_as_a_star_does) {
  Job job({.size = 13, .hosts = 4, .control_fanout = 1});
  job.each([](Runtime& runtime, int) {
    for (int step = 0; step < 20; ++step) {
      std::vector<std::vector<float>> values(30, std::vector<float>(10, 1.0F));
      std::vector<Handle> handles;
      for (size_t i = 0; i < values.size(); ++i) {
        handles.push_back(submit_one(runtime, allreduce_of("t" + std::to_string(i), values[i])));
      }
      for (const Handle handle : handles) finish(runtime, handle);
      for (const auto& tensor : values) CHECK_EQ(tensor[9], 13.0F);
      runtime.mark_step();
    }
    // One message up and one to each child per cycle, whatever the number of ranks.
    const ControlTraffic traffic = runtime.counts().traffic;
    CHECK(traffic.messages_sent > 0);
  });
}

TEST(different_operations_under_one_name_are_found_in_a_tree) {
  Job job({.size = 5, .control_fanout = 1});
  job.each([](Runtime& runtime, int rank) {
    std::vector<float> values(2, 1.0F);
    Draft draft = allreduce_of(rank == 3 ? "allgather.x" : "allreduce.x", values);
    if (rank == 3) draft.request.op = OpType::kAllgather;
    const Error error = failure_of(runtime, submit_one(runtime, draft));
    CHECK(error.code() == ErrorCode::kMismatch);
    CHECK(contains(error.what(), "rank 3 announced allgather"));
    values.assign(2, 1.0F);
    allreduce_now(runtime, "allreduce.x", values);
    CHECK_EQ(values[0], 5.0F);
  });
}
