// What negotiation costs, by ranks and by the tree's fan-out: messages and bytes per cycle at
// rank 0 and at the busiest other rank, and the time.
//
//     build/cpp/negotiation_bench            # 2 to 128 ranks, half a minute
//
// All ranks are threads of one process, each a host of its own. A step announces the 161 tensors of
// a ResNet-50, empty ones, so that nothing but their negotiation is left, until the response cache
// knows them all and after. Messages, and the bytes of their payloads, are counted; the time of a
// step is that of one machine doing the work of all ranks: the sum of that work, not how long a
// real job of that size would wait.
//
// A star costs rank 0 one message per other rank each way. A tree costs it a number that grows with
// the fan-out and the depth, but more bytes: docs/negotiation.md has the figures and the reason.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "runtime/job.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kTensors = 161;
constexpr int kWarmUpSteps = 3;
constexpr int kSteps = 30;

std::vector<Draft> step() {
  static std::vector<float> empty;
  std::vector<Draft> drafts;
  for (int i = 0; i < kTensors; ++i) {
    drafts.push_back(allreduce_of("gradient." + std::to_string(i), empty));
  }
  return drafts;
}

void run_steps(Job& job, int steps) {
  job.each([steps](Runtime& runtime, int) {
    const std::vector<Draft> drafts = step();
    for (int i = 0; i < steps; ++i) {
      for (const Handle handle : submit_all(runtime, drafts)) finish(runtime, handle);
    }
  });
}

std::vector<CycleCounts> counts_of(Job& job) {
  std::vector<CycleCounts> counts;
  for (int rank = 0; rank < job.size(); ++rank) counts.push_back(job[rank].counts());
  return counts;
}

uint64_t messages(const CycleCounts& counts) {
  return counts.traffic.messages_sent + counts.traffic.messages_received;
}
uint64_t bytes(const CycleCounts& counts) {
  return counts.traffic.bytes_sent + counts.traffic.bytes_received;
}

void measure(int ranks, int fanout) {
  JobOptions options;
  options.size = ranks;
  options.hosts = ranks;
  options.shared_memory = false;
  options.control_fanout = fanout;
  options.heartbeat_timeout = std::chrono::seconds(120);
  Job job(options);
  run_steps(job, kWarmUpSteps);
  const std::vector<CycleCounts> before = counts_of(job);
  const uint64_t begin = now_ns();
  run_steps(job, kSteps);
  const double step_ms = static_cast<double>(now_ns() - begin) / 1e6 / kSteps;
  const std::vector<CycleCounts> after = counts_of(job);

  const auto cycles = static_cast<double>(after[0].cycles - before[0].cycles);
  double others_messages = 0;
  double others_bytes = 0;
  for (size_t rank = 1; rank < after.size(); ++rank) {
    others_messages = std::max(others_messages,
                               static_cast<double>(messages(after[rank]) - messages(before[rank])));
    others_bytes =
        std::max(others_bytes, static_cast<double>(bytes(after[rank]) - bytes(before[rank])));
  }
  std::printf("%5d  %7s  %8.2f  %9.1f  %8.0f  %9.1f  %8.0f  %8.2f\n", ranks,
              fanout >= ranks - 1 ? "star" : std::to_string(fanout).c_str(), cycles / kSteps,
              static_cast<double>(messages(after[0]) - messages(before[0])) / cycles,
              static_cast<double>(bytes(after[0]) - bytes(before[0])) / cycles,
              others_messages / cycles, others_bytes / cycles, step_ms);
  std::fflush(stdout);
}

}  // namespace

TEST(cost_of_negotiation) {
  std::printf("                         per cycle: rank 0       busiest other\n");
  std::printf("ranks  fan-out  cyc/step   messages     bytes   messages     bytes   ms/step\n");
  for (const int ranks : {2, 4, 8, 16, 32, 64, 128}) {
    for (const int fanout : {2, 4, 8, 16}) {
      if (fanout < ranks - 1) measure(ranks, fanout);
    }
    measure(ranks, ranks);
  }
}
