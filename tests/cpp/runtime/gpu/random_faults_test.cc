// Random faults while operations are in flight: nothing hangs, every rank names the one at fault,
// and no memory is used before or after its time. HVDTUNE_TEST_CASES=100 makes it a soak.
#include <random>

#include "gpu_job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

struct RandomFault {
  std::string text;
  bool strikes;  // the job fails
};

RandomFault random_fault(std::mt19937& random, int rank) {
  const auto below = [&](unsigned end) { return static_cast<int>(random() % end); };
  const std::string where = " rank=" + std::to_string(rank);
  std::string text = "async-error" + where + " op=" + std::to_string(1 + below(12)) +
                     " code=" + std::to_string(1 + below(3));
  switch (below(5)) {
    case 0:
      return {"refuse-init" + where + " code=" + std::to_string(1 + below(3)), true};
    case 1:
      return {"late-peer" + where + " op=3 ms=30", false};
    case 2:
      return {text + "; slow-abort ms=" + std::to_string(below(50)), true};
    case 3:
      return {text + "; slow-launch ms=" + std::to_string(below(5)), true};
    default:
      return {text, true};
  }
}

void run_steps(Runtime& runtime, const Device& device) {
  const GpuTensorPair first(device, floats(1.0F));
  const GpuTensorPair second(device, floats(1.0F));
  for (int step = 0; step < 10; ++step) {
    run_plain_and_scaled(runtime, device, first, second);
  }
}

}  // namespace

TEST(random_faults_in_flight_end_the_job_everywhere_or_do_no_harm) {
  std::mt19937 random(20261124);
  for (int i = 0; i < cases(16); ++i) {
    const int size = 2 + static_cast<int>(random() % 2);
    const int culprit = static_cast<int>(random()) & 1;
    const RandomFault fault = random_fault(random, culprit);
    GpuJob job({.size = size, .bits = random() % 2 == 0 ? GpuBits::kNccl : GpuBits::kExact});
    CHECK_EQ(Fake::get().set_faults(fault.text.c_str()), 0);
    job.each([&](Runtime& runtime, const Device& device, int) {
      try {
        run_steps(runtime, device);
        CHECK(!fault.strikes);
      } catch (const Error& error) {
        if (fault.strikes && error.rank() == culprit) return;
        std::cerr << "case " << i << ", " << fault.text << ": " << error.what() << std::endl;
        CHECK(false);
      }
    });
    Fake::get().set_faults("");
  }
}
