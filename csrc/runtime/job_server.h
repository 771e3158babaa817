// The launcher's end of a job: brings the ranks together, then listens to rank 0 and carries
// proposals to it. When rank 0 hangs up the ranks may form a job again, of the next generation.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/hmac.h"
#include "base/status.h"
#include "base/stop.h"
#include "transport/rendezvous.h"
#include "transport/socket.h"
#include "wire/message.h"

namespace hvdtune {

struct JobFormed {
  std::vector<RankInfo> members;  // by rank
};
struct JobAdopted {
  uint32_t version = 0;
};
struct JobLost {
  int rank = -1;
  std::string message;
};
struct JobLeft {
  int rank = -1;  // it has shut down in good order; so do all ranks at the end of a job
};
struct JobDeclared {
  std::string knobs;  // of the script, as JSON
};
struct JobClosed {};  // rank 0 hung up; only ranks that call init() anew make anything follow

using JobEvent =
    std::variant<JobFormed, StepReport, JobAdopted, JobLost, JobLeft, JobDeclared, JobClosed>;

struct JobServerOptions {
  Key key{};
  int size = 1;
  uint32_t generation = 0;
  std::string bind_address = "127.0.0.1";
  uint16_t port = 0;  // 0: any that is free
  std::chrono::nanoseconds start_timeout = std::chrono::seconds(30);
};

// Thread rule: every member may be called from any thread.
class JobServer {
 public:
  // Listens at once; ranks may connect from here on.
  explicit JobServer(const JobServerOptions& options);
  ~JobServer();

  // While there is a job, who connects there is cut off at once.
  uint16_t port() const { return port_; }
  // Nothing when `time` passes first.
  std::optional<JobEvent> next_event(std::chrono::nanoseconds time);
  // Reaches rank 0 as soon as there is a job.
  void propose(const Proposal& proposal);
  void order(const TimelineOrder& order);
  void close();
  // Closes as close() does, and ranks that still wait for each other fail at once with this text.
  // For a launcher that sees a rank end before it has joined, which no connection can tell.
  void abort(const std::string& why);

 private:
  void run();
  void hold_job(uint32_t generation);
  void serve(SecureChannel rank_0);
  void publish(JobEvent event);
  std::vector<Proposal> take_proposals();
  std::vector<TimelineOrder> receive_orders();

  const JobServerOptions options_;
  Listener listener_;  // the thread's
  const uint16_t port_;
  StopSignal stop_;
  FailedStart failed_start_;  // its text is guarded by mutex_ until raised
  WakeSignal wake_;
  std::mutex mutex_;  // guards events_, proposals_ and orders_
  std::condition_variable arrived_;
  std::deque<JobEvent> events_;
  std::vector<Proposal> proposals_;
  std::vector<TimelineOrder> orders_;
  std::thread thread_;
};

}  // namespace hvdtune
