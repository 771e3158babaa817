// What is told of operations that a GPU does not come to the end of.
#include <fcntl.h>
#include <unistd.h>

#include <future>

#include "gpu_job.h"
#include "timeline/reading.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// What this process writes on standard error goes to a file as long as it lives.
class CapturedErrors {
 public:
  CapturedErrors() : file_("errors"), before_(dup(STDERR_FILENO)) {
    const int fd = open(file_.path().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    dup2(fd, STDERR_FILENO);
    close(fd);
  }
  ~CapturedErrors() {
    dup2(before_, STDERR_FILENO);
    close(before_);
  }
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;

  // Returns when the text has been written, or after a minute.
  bool await(const std::string& text) const {
    const Deadline deadline = Deadline::in(std::chrono::seconds(60));
    while (read_bytes(file_.path()).find(text) == std::string::npos) {
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  ScratchFile file_;
  int before_;
};

HangOptions quick(std::chrono::milliseconds abort) {
  HangOptions hang;
  hang.warning = std::chrono::milliseconds(200);
  hang.abort = abort;
  return hang;
}

}  // namespace

// Kernels of rank 1 never begin, as where its GPU does something else.
TEST(an_operation_that_nccl_does_not_end_is_told_to_be_on_the_gpus_and_given_up) {
  GpuJob job({.size = 2, .hang = quick(std::chrono::milliseconds(400))});
  job.each([](Runtime& runtime, const Device& device, int) {
    run_one(runtime, device, sum_of("first"), floats(1.0F));
  });
  CHECK_EQ(Fake::get().set_faults("late-peer rank=1 ms=-1"), 0);
  job.each([](Runtime& runtime, const Device& device, int) {
    const GpuTensorPair tensor(device, floats(1.0F));
    std::vector<Submission> one;
    one.push_back(on_gpu(device, sum_of("stuck"), {tensor.memory()}));
    const Error error = failure_of(runtime, runtime.submit(std::move(one))[0]);
    CHECK(error.code() == ErrorCode::kHang);
    CHECK(contains(error.what(), "tensor \"stuck\" waited"));
    CHECK(contains(error.what(), "to finish on the GPUs of ranks 0, 1"));
  });
}

// For longer than after which a hang is given up.
TEST(a_rank_whose_gpu_has_not_made_its_tensor_is_waited_for_and_named) {
  for (const bool split : {false, true}) {
    Setting setting;
    setting.hierarchical_allreduce = split;
    GpuJob job({.size = 4,
                .hosts = 2,
                .setting = setting,
                .hang = quick(std::chrono::milliseconds(200)),
                .log_level = LogLevel::kWarning});
    job.each([](Runtime& runtime, const Device& device, int) {
      run_one(runtime, device, sum_of("first"), floats(1.0F));
    });
    std::promise<void> go_on;
    const std::shared_future<void> gone_on = go_on.get_future().share();
    std::vector<Handle> handles(4);
    std::vector<std::unique_ptr<GpuTensorPair>> tensors(4);
    job.each([&](Runtime& runtime, const Device& device, int rank) {
      const auto index = static_cast<size_t>(rank);
      tensors[index] = std::make_unique<GpuTensorPair>(device, floats(1.0F));
      if (rank == 2) {
        const Gpu::Scope scope(*device.gpu());
        const auto wait = [](void* future) {
          static_cast<const std::shared_future<void>*>(future)->wait();
        };
        auto* argument = const_cast<std::shared_future<void>*>(&gone_on);
        CHECK_EQ(Fake::get().launch_host_function(device.stream(), wait, argument), 0);
      }
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("late"), {tensors[index]->memory()}));
      handles[index] = runtime.submit(std::move(one))[0];
    });
    const CapturedErrors errors;
    CHECK(errors.await("rank 2: still computing; its GPU is still computing the tensor"));
    go_on.set_value();
    job.each([&](Runtime& runtime, const Device&, int rank) {
      const auto index = static_cast<size_t>(rank);
      finish(runtime, handles[index]);
      CHECK(tensors[index]->output() == floats(4.0F).bytes);
    });
  }
}
