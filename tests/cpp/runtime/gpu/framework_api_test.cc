// The interface that a framework's own library uses, with tensors on GPUs.
#include "runtime/framework_api.h"

#include <condition_variable>
#include <mutex>

#include "gpu_job.h"
#include "runtime/framework.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

const hvdtune_framework_api& api() {
  return *reinterpret_cast<const hvdtune_framework_api*>(framework_api());
}

// An operation on a tensor of a GPU, as a framework sees it.
class Course {
 public:
  Course(Runtime& runtime, const Device& device, const char* op, const char* name, size_t count,
         const TensorMemory& memory)
      : job_(reinterpret_cast<hvdtune_job*>(new_job(runtime))),
        stream_(device.stream()),
        shape_(static_cast<int64_t>(count)) {
    const hvdtune_tensor tensor{"float32", &shape_, 1, memory.input, memory.output};
    hvdtune_request request{};
    request.op = op;
    request.name = name;
    request.prescale = request.postscale = 1.0;
    request.tensors = &tensor;
    request.tensor_count = 1;
    request.gpu = device.place().number;
    request.stream = stream_;
    request.enqueued = &Course::enqueued;
    api().submit(job_, &request, 1, &Course::ended, this);
  }
  ~Course() {
    await_end();
    if (operation_ != nullptr) api().release_operation(operation_);
    api().release(job_);
  }
  Course(const Course&) = delete;
  Course& operator=(const Course&) = delete;

  void await_enqueued() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return operation_ != nullptr; });
  }
  // The class of the error, "" for none.
  std::string await_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return error_;
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  // REQUIRES, as all that follows: it has been enqueued.
  const hvdtune_outcome& outcome() const { return *outcome_; }
  std::string wait_on_stream() { return error_of(api().wait_on_stream(job_, operation_, stream_)); }
  std::string copy_result(void* to) {
    return error_of(api().copy_result(job_, operation_, 0, to, stream_));
  }

 private:
  static std::string error_of(const hvdtune_outcome* failure) {
    return failure == nullptr ? "" : failure->error;
  }
  static void enqueued(void* context, hvdtune_operation* operation,
                       const hvdtune_outcome* outcome) {
    auto& self = *static_cast<Course*>(context);
    const std::lock_guard lock(self.mutex_);
    CHECK(!self.ended_);
    self.operation_ = operation;
    self.outcome_ = outcome;
    self.changed_.notify_all();
  }
  static void ended(void* context, const hvdtune_outcome* outcome) {
    auto& self = *static_cast<Course*>(context);
    const std::lock_guard lock(self.mutex_);
    self.error_ = outcome->error == nullptr ? "" : outcome->error;
    self.ended_ = true;
    self.changed_.notify_all();
  }

  hvdtune_job* const job_;
  const CudaStream stream_;
  const int64_t shape_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  hvdtune_operation* operation_ = nullptr;
  const hvdtune_outcome* outcome_ = nullptr;
  bool ended_ = false;
  std::string error_;
};

}  // namespace

TEST(a_framework_goes_on_when_its_stream_waits) {
  GpuJob job({.size = 2});
  // The communicator is there before streams stand still.
  job.each([](Runtime& runtime, const Device& device, int) {
    run_one(runtime, device, sum_of("first"), floats(1.0F));
  });
  Fake::get().pause(1);
  std::vector<std::unique_ptr<GpuTensorPair>> tensors(2);
  std::vector<std::unique_ptr<Course>> courses(2);
  job.each([&](Runtime& runtime, const Device& device, int rank) {
    const auto index = static_cast<size_t>(rank);
    tensors[index] = std::make_unique<GpuTensorPair>(device, floats(1.0F));
    courses[index] = std::make_unique<Course>(runtime, device, "allreduce", "x", kFloats,
                                              tensors[index]->memory());
    courses[index]->await_enqueued();
    CHECK_EQ(courses[index]->wait_on_stream(), "");
    CHECK(!courses[index]->has_ended());
  });
  Fake::get().pause(0);
  job.each([&](Runtime&, const Device&, int rank) {
    const auto index = static_cast<size_t>(rank);
    const Values twos = floats(2.0F);
    CHECK(tensors[index]->output() == twos.bytes);
    CHECK_EQ(courses[index]->await_end(), "");
  });
}

TEST(results_are_known_when_they_are_enqueued_and_copied_on_the_stream) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int rank) {
    const auto own = std::vector<float>(static_cast<size_t>(rank) + 1, static_cast<float>(rank));
    const Values expected = values_of<float>(DType::kFloat32, {0.0F, 1.0F, 1.0F});
    const GpuTensorPair tensor(device, values_of(DType::kFloat32, own), expected.bytes.size());
    Course course(runtime, device, "allgather", "rows", own.size(),
                  {tensor.memory().input, nullptr});
    course.await_enqueued();
    CHECK_EQ(course.outcome().result_count, 1);
    CHECK(course.outcome().results[0].bytes == nullptr);
    CHECK_EQ(course.outcome().results[0].shape[0], 3);
    CHECK_EQ(course.wait_on_stream(), "");
    CHECK_EQ(course.copy_result(tensor.memory().output), "");
    CHECK(tensor.output() == expected.bytes);
  });
}

TEST(what_cannot_be_on_a_gpu_is_told_by_its_end_alone) {
  GpuJob job({.size = 2});
  job.each([](Runtime& runtime, const Device& device, int) {
    const GpuTensorPair tensor(device, floats(1.0F));
    Course nameless(runtime, device, "allreduce", "", kFloats, tensor.memory());
    CHECK_EQ(nameless.await_end(), "UsageError");
  });
}

TEST(nobody_waits_for_a_job_that_has_ended) {
  auto job = std::make_unique<GpuJob>(GpuJobOptions{.size = 1});
  const Device& device = job->device(0);
  auto tensor = std::make_unique<GpuTensorPair>(device, floats(1.0F));
  Course course((*job)[0], device, "allreduce", "x", kFloats, tensor->memory());
  course.await_enqueued();
  CHECK_EQ(course.await_end(), "");
  job->end();
  CHECK_EQ(course.wait_on_stream(), "ShutdownError");
}
