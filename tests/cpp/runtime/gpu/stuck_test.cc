// An abort of NCCL that never comes back. The child is made before the process has any thread.
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

TEST(a_process_that_nccl_does_not_let_go_of_ends) {
  const pid_t child = fork();
  if (child == 0) {
    GpuJob job({.size = 2, .abort_timeout = std::chrono::milliseconds(300)});
    Fake::get().set_faults("async-error rank=1 op=1 code=1; hung-abort rank=0");
    job.each([](Runtime& runtime, const Device& device, int) {
      const GpuTensorPair tensor(device, floats(1.0F));
      std::vector<Submission> one;
      one.push_back(on_gpu(device, sum_of("doomed"), {tensor.memory()}));
      failure_of(runtime, runtime.submit(std::move(one))[0]);
    });
    std::_Exit(0);  // the abort came back
  }
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 70);
}
