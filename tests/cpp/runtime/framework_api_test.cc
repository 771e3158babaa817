// The interface that a framework's own library uses, by two ranks in one process.
#include "runtime/framework_api.h"

#include <condition_variable>
#include <mutex>

#include "runtime/framework.h"
#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

const hvdtune_framework_api& api() {
  return *reinterpret_cast<const hvdtune_framework_api*>(framework_api());
}

hvdtune_job* job_of(const Runtime& runtime) {
  return reinterpret_cast<hvdtune_job*>(new_job(runtime));
}

// What `done` has been told; waits for it.
class Told {
 public:
  static void done(void* context, const hvdtune_outcome* outcome) {
    auto& self = *static_cast<Told*>(context);
    const std::lock_guard lock(self.mutex_);
    self.error_ = outcome->error == nullptr ? "" : outcome->error;
    self.message_ = outcome->message;
    for (int i = 0; i < outcome->number_count; ++i) self.numbers_.push_back(outcome->numbers[i]);
    for (int i = 0; i < outcome->result_count; ++i) {
      const hvdtune_result& result = outcome->results[i];
      self.rows_.push_back(result.shape[0]);
      self.first_.push_back(*static_cast<const float*>(result.bytes));
    }
    ++self.times_;
    self.changed_.notify_all();
  }

  // The class of the error, "" for none.
  std::string wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return times_ > 0; });
    return error_;
  }

  const std::string& message() const { return message_; }
  const std::vector<int64_t>& numbers() const { return numbers_; }
  const std::vector<int64_t>& rows() const { return rows_; }
  const std::vector<float>& first() const { return first_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int times_ = 0;
  std::string error_;
  std::string message_;
  std::vector<int64_t> numbers_;
  std::vector<int64_t> rows_;
  std::vector<float> first_;
};

struct Call {
  hvdtune_request request{};
  hvdtune_tensor tensor{};
  int64_t shape[1];

  Call(const char* op, const char* name, std::vector<float>& input, float* output)
      : shape{static_cast<int64_t>(input.size())} {
    tensor = {"float32", shape, 1, input.data(), output};
    request.op = op;
    request.name = name;
    request.prescale = request.postscale = 1.0;
    request.gpu = -1;
    request.tensors = &tensor;
    request.tensor_count = 1;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

}  // namespace

TEST(an_allreduce_and_an_allgather_are_told_to_both_ranks) {
  Job job({});
  job.each([](Runtime& runtime, int rank) {
    hvdtune_job* own = job_of(runtime);
    std::vector<float> values(3, static_cast<float>(rank + 1));
    Told reduced;
    const Call sum("allreduce", "sum", values, values.data());
    api().submit(own, &sum.request, 1, Told::done, &reduced);
    CHECK_EQ(reduced.wait(), "");
    CHECK_EQ(values[2], 3.0F);

    std::vector<float> rows(static_cast<size_t>(rank + 1), static_cast<float>(rank));
    Told gathered;
    const Call all("allgather", "all", rows, nullptr);
    api().submit(own, &all.request, 1, Told::done, &gathered);
    CHECK_EQ(gathered.wait(), "");
    CHECK(gathered.rows() == std::vector<int64_t>{3});
    CHECK(gathered.first() == std::vector<float>{0.0F});
    api().release(own);
  });
}

TEST(what_cannot_be_is_told_with_its_code) {
  Job job({});
  job.each([](Runtime& runtime, int rank) {
    hvdtune_job* own = job_of(runtime);
    std::vector<float> values(3, 1.0F);
    Told refused;
    const Call nameless("allreduce", "", values, values.data());
    api().submit(own, &nameless.request, 1, Told::done, &refused);
    CHECK_EQ(refused.wait(), "UsageError");
    CHECK(refused.message().find("no name") != std::string::npos);

    std::vector<float> other(static_cast<size_t>(rank + 1), 1.0F);
    Told differing;
    const Call odd("allreduce", "odd", other, other.data());
    api().submit(own, &odd.request, 1, Told::done, &differing);
    CHECK_EQ(differing.wait(), "MismatchError");
    api().release(own);
  });
}

TEST(a_job_that_is_over_is_said_to_be) {
  hvdtune_job* own = nullptr;
  Told pending;
  std::vector<float> values(3, 1.0F);
  const Call lonely("allreduce", "lonely", values, values.data());
  {
    Job job({});
    own = job_of(job[0]);
    hvdtune_place place{};
    CHECK_EQ(api().place(own, &place), 1);
    CHECK_EQ(place.size, 2);
    int size = 0;
    int position = 0;
    CHECK_EQ(api().process_set(own, 0, &size, &position), 1);
    CHECK_EQ(position, 0);
    CHECK_EQ(api().process_set(own, 7, &size, &position), 0);
    api().submit(own, &lonely.request, 0, Told::done, &pending);
  }
  CHECK(pending.wait() != "");
  Told late;
  api().submit(own, &lonely.request, 0, Told::done, &late);
  CHECK_EQ(late.wait(), "ShutdownError");
  hvdtune_place place{};
  CHECK_EQ(api().place(own, &place), 0);
  api().mark_step(own);
  api().release(own);
}

// One rank: the operation ends in the call that starts it, and so do those that it starts.
TEST(what_is_told_the_end_may_start_the_next) {
  JobOptions alone;
  alone.size = 1;
  Job job(alone);
  struct Chain {
    hvdtune_job* own;
    std::vector<float> values = std::vector<float>(3, 2.0F);
    Call call{"allreduce", "link", values, values.data()};
    Told told;
    int left = 5;

    static void next(void* context, const hvdtune_outcome* outcome) {
      auto& self = *static_cast<Chain*>(context);
      if (outcome->error != nullptr || --self.left == 0) {
        return Told::done(&self.told, outcome);
      }
      api().submit(self.own, &self.call.request, 1, next, context);
    }
  } chain;
  chain.own = job_of(job[0]);
  api().submit(chain.own, &chain.call.request, 1, Chain::next, &chain);
  CHECK_EQ(chain.told.wait(), "");
  CHECK_EQ(chain.left, 0);
  api().release(chain.own);
}
