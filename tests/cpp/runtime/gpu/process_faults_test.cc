// Random faults in jobs whose ranks are processes: nothing hangs, every rank that can speak names
// the one at fault, and no result is wrong. `make gpu-fake-soak` tries 3,000.
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>

#include "rank_processes.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr int kMostRanks = 3;
constexpr int kFaultSteps = 8;  // in which a fault may strike; as many again follow
constexpr std::chrono::seconds kHang{60};

// Of a rank, in memory shared with the test.
struct Report {
  enum Kind { kSilent, kSucceeded, kFailed };
  std::atomic<int> kind;
  std::atomic<int> named;
  std::atomic<int> wrong;  // results
  std::atomic<uint64_t> done_ns;
  std::atomic<uint64_t> failed_ns;
  char text[240];
};

enum class End { kReports, kIsKilled, kIsStopped, kIsStuck };

struct FaultCase {
  const char* kind;
  std::string always;   // from the start
  std::string in_step;  // besides, on the culprit from some step on
  bool must_strike = true;
  End culprit = End::kReports;
  bool other_is_stuck = false;
};

struct Plan {
  FaultCase fault;
  int size;
  int hosts;
  int culprit;
  int step;
  GpuBits bits;
};

FaultCase draw_fault(std::mt19937& random, int culprit, int other) {
  const auto below = [&](unsigned end) { return static_cast<int>(random() % end); };
  const std::string where = " rank=" + std::to_string(culprit);
  const std::string there = " rank=" + std::to_string(other);
  const std::string at = " op=" + std::to_string(1 + below(2 * kFaultSteps));
  const std::string code = " code=" + std::to_string(1 + below(3));
  const std::string error = "async-error" + where + at + code;
  switch (below(13)) {
    case 0:
      return {"none", "", "", false};
    case 1:
      return {"late peer", "late-peer" + where + at + " ms=" + std::to_string(below(200)), "",
              false};
    case 2:
      return {"slow launches", "slow-launch" + where + " ms=" + std::to_string(below(20)), "",
              false};
    case 3:
      return {"error", error, ""};
    case 4:
      return {"error, slow launches", error + "; slow-launch ms=" + std::to_string(below(20)), ""};
    case 5:
      return {"error, slow aborts", error + "; slow-abort" + there + " ms=2000", ""};
    case 6:
      return {"error, abort hangs", error + "; hung-abort" + there, "", true, End::kReports, true};
    case 7:
      return {"error, own abort hangs", error + "; hung-abort" + where, "", true, End::kIsStuck};
    case 8:
      return {"init refused", "refuse-init" + where + code, ""};
    case 9:
      return {"init refused, another never ready",
              "refuse-init" + where + code + "; never-ready" + there, ""};
    case 10:
      return {"kill", "kill" + where + at, "", true, End::kIsKilled};
    case 11:
      return {"stop", "", below(2) == 0 ? "stop-wait times=1" : "stop-query stream=2 times=1", true,
              End::kIsStopped};
    default:
      return {"no memory", "", "out-of-memory", false};
  }
}

Plan draw_plan(std::mt19937& random) {
  Plan plan{};
  plan.size = 2 + static_cast<int>(random() % (kMostRanks - 1));
  plan.hosts = random() % 2 == 0 ? 1 : plan.size;
  plan.culprit = static_cast<int>(random() % static_cast<unsigned>(plan.size));
  plan.step = static_cast<int>(random() % kFaultSteps);
  plan.bits = random() % 2 == 0 ? GpuBits::kNccl : GpuBits::kExact;
  plan.fault = draw_fault(random, plan.culprit, (plan.culprit + 1) % plan.size);
  return plan;
}

// Two operations at a time, of which one needs memory of hvdtune's own.
void run_step(Runtime& runtime, const Device& device, const GpuTensorPair& first,
              const GpuTensorPair& second, int size, Report& report) {
  Request scaled = sum_of("scaled");
  scaled.postscale = 0.5;
  std::vector<Submission> two;
  two.push_back(on_gpu(device, sum_of("plain"), {first.memory()}));
  two.push_back(on_gpu(device, scaled, {second.memory()}));
  for (const Handle handle : runtime.submit(std::move(two))) {
    finish(runtime, handle);
    report.done_ns = now_ns();
  }
  const auto sum = static_cast<float>(size);
  if (first.output() != floats(sum).bytes) ++report.wrong;
  if (second.output() != floats(0.5F * sum).bytes) ++report.wrong;
}

int run_faulty_rank(const Plan& plan, int rank, uint16_t port, Report& report) {
  Fake::get();  // its settings come before the library
  CHECK_EQ(Fake::get().set_faults(plan.fault.always.c_str()), 0);
  const Device device(rank);
  JobOptions job{.size = plan.size, .hosts = plan.hosts};
  job.heartbeat_timeout = HealthOptions{}.timeout;
  const bool hangs = plan.fault.other_is_stuck || plan.fault.culprit == End::kIsStuck;
  Runtime runtime(with_gpu(runtime_options(job, rank, port), plan.bits,
                           std::chrono::milliseconds(hangs ? 500 : 30'000)));
  const GpuTensorPair first(device, floats(1.0F));
  const GpuTensorPair second(device, floats(1.0F));
  try {
    for (int step = 0; step < 2 * kFaultSteps; ++step) {
      if (rank == plan.culprit && step == plan.step && !plan.fault.in_step.empty()) {
        Fake::get().set_faults(plan.fault.in_step.c_str());
      }
      run_step(runtime, device, first, second, plan.size, report);
    }
    report.kind = Report::kSucceeded;
  } catch (const Error& error) {
    report.failed_ns = now_ns();
    report.named = error.rank();
    std::strncpy(report.text, error.what(), sizeof report.text - 1);
    report.kind = Report::kFailed;
  }
  runtime.shutdown();
  GpuJob::check_order();
  return 0;
}

class FaultyJob {
 public:
  explicit FaultyJob(const Plan& plan)
      : plan_(plan), reports_(new_reports()), ranks_(plan.size, [this](int rank, uint16_t port) {
          return run_faulty_rank(plan_, rank, port, reports_[rank]);
        }) {}
  ~FaultyJob() { munmap(reports_, kMostRanks * sizeof(Report)); }
  FaultyJob(const FaultyJob&) = delete;
  FaultyJob& operator=(const FaultyJob&) = delete;

  // Adds how long after the last operation each survivor had its error.
  void check(std::vector<uint64_t>& delays) {
    for (int rank = 0; rank < plan_.size; ++rank) {
      if (rank != plan_.culprit) check_end(rank, is_stuck(rank));
    }
    check_culprit();
    bool failed = false;
    for (int rank = 0; rank < plan_.size; ++rank) failed = failed || has_failed(rank);
    expect(failed || !plan_.fault.must_strike, plan_.culprit, "the fault has not struck");
    uint64_t last_ns = 0;
    for (int rank = 0; rank < plan_.size; ++rank) {
      const Report& report = reports_[rank];
      expect(report.wrong == 0, rank, "a result is wrong");
      last_ns = std::max(last_ns, report.done_ns.load());
      if (failed && speaks(rank)) expect(has_failed(rank), rank, "it has no error");
      if (has_failed(rank)) expect(report.named == plan_.culprit, rank, "another rank is named");
    }
    for (int rank = 0; rank < plan_.size; ++rank) {
      // None before the first operation, when ranks are still joining.
      if (rank == plan_.culprit || !has_failed(rank) || last_ns == 0) continue;
      const uint64_t failed_ns = reports_[rank].failed_ns;
      delays.push_back(failed_ns - std::min(failed_ns, last_ns));
    }
  }

 private:
  static Report* new_reports() {
    void* memory = mmap(nullptr, kMostRanks * sizeof(Report), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return static_cast<Report*>(memory);
  }
  bool has_failed(int rank) const { return reports_[rank].kind == Report::kFailed; }
  bool is_stuck(int rank) const {
    const bool other = plan_.fault.other_is_stuck && rank == (plan_.culprit + 1) % plan_.size;
    return other || (rank == plan_.culprit && plan_.fault.culprit == End::kIsStuck);
  }
  bool speaks(int rank) const {
    return !is_stuck(rank) && (rank != plan_.culprit || plan_.fault.culprit == End::kReports);
  }

  void check_culprit() {
    const int rank = plan_.culprit;
    switch (plan_.fault.culprit) {
      case End::kReports:
        return check_end(rank, false);
      case End::kIsStuck:
        return check_end(rank, true);
      case End::kIsKilled: {
        const int status = await(rank);
        return expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, rank,
                      "it was not killed");
      }
      case End::kIsStopped:
        break;
    }
    kill(ranks_.pid(rank), SIGCONT);
    const int status = await(rank);
    // Those of its host end a rank that was stopped while it wrote into their memory.
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return;
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, rank, "it did not end by itself");
    expect(has_failed(rank), rank, "it was not told that it had been given up");
  }

  void check_end(int rank, bool stuck) {
    const int status = await(rank);
    expect(WIFEXITED(status), rank, "a signal has ended it");
    expect(WEXITSTATUS(status) == (stuck ? 70 : 0), rank, "its exit code is not the expected one");
  }

  int await(int rank) {
    const Deadline deadline = Deadline::in(kHang);
    int status = 0;
    while (waitpid(ranks_.pid(rank), &status, WNOHANG) != ranks_.pid(rank)) {
      expect(!deadline.passed(), rank, "it hangs");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return status;
  }

  void expect(bool holds, int rank, const char* otherwise) const {
    if (holds) return;
    std::cerr << plan_.fault.kind << " (" << plan_.fault.always << plan_.fault.in_step << "), step "
              << plan_.step << ", " << plan_.size << " ranks on " << plan_.hosts
              << " hosts, culprit " << plan_.culprit << ", rank " << rank << ": "
              << reports_[rank].text << std::endl;
    for (int each = 0; each < plan_.size; ++each) kill(ranks_.pid(each), SIGKILL);
    fail(__FILE__, __LINE__, otherwise);
  }

  const Plan plan_;
  Report* const reports_;
  const RankProcesses ranks_;
};

double milliseconds_at(const std::vector<uint64_t>& sorted, double share) {
  const auto index = static_cast<size_t>(share * static_cast<double>(sorted.size() - 1));
  return static_cast<double>(sorted[index]) / 1e6;
}

}  // namespace

TEST(random_faults_of_processes_hang_nothing_and_name_the_right_rank) {
  std::mt19937 random(20261125);
  std::vector<uint64_t> delays;
  std::map<std::string, uint64_t> longest;  // by the kind of fault
  const int count = cases(6);
  for (int i = 0; i < count; ++i) {
    const Plan plan = draw_plan(random);
    const size_t before = delays.size();
    FaultyJob(plan).check(delays);
    for (size_t at = before; at < delays.size(); ++at) {
      longest[plan.fault.kind] = std::max(longest[plan.fault.kind], delays[at]);
    }
  }
  std::ranges::sort(delays);
  if (delays.empty()) return;
  std::printf("%d jobs, none hung. After the last operation %zu ranks had their error within:\n",
              count, delays.size());
  std::printf("%8.0f ms  median\n%8.0f ms  99th percentile\n", milliseconds_at(delays, 0.5),
              milliseconds_at(delays, 0.99));
  for (const auto& [kind, ns] : longest) {
    std::printf("%8.0f ms  %s\n", static_cast<double>(ns) / 1e6, kind.c_str());
  }
}
