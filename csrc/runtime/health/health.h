// Watches which ranks are alive, on a thread of its own. The thread never takes Python's lock and
// never waits for data, so that a rank busy for minutes still answers.
//
// Every rank pings rank 0; rank 0 answers. A rank whose connection closes without a goodbye frame
// is lost at once. A rank that is silent for the heartbeat timeout is suspected: it is lost if a
// rank of its host finds its process stopped or gone, or if no rank can look. If its process runs,
// it is only starved, and has kStarvedTimeouts times as long. Rank 0 notifies all others.
//
// The pings also measure each rank's clock against rank 0's, as NTP does (RFC 5905, section 8),
// and carry the data of the hang detector, which uses these connections, too.
//
// An answer shows a rank that it was heard. From then on no rank gives it up before the heartbeat
// timeout, so it holds the lease for that long. For rank 0, a ping shows the last answer that has
// arrived.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "base/lease.h"
#include "base/log.h"
#include "base/status.h"
#include "base/stop.h"
#include "runtime/framed_channel.h"
#include "runtime/health/hang_detector.h"
#include "runtime/health/job_loss.h"
#include "runtime/health/process_probe.h"
#include "timeline/recorder.h"
#include "transport/mesh.h"

namespace hvdtune {

struct HealthOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(2);
  LogLevel log_level = LogLevel::kWarning;
};

// Thread rule: public members may be called from any thread. All state that changes belongs to the
// health thread, except loss_, wake_ and leaving_.
class Health {
 public:
  static constexpr int kStarvedTimeouts = 15;

  // `failed` is raised when a rank is lost; `lease` is held while no other rank can give this one
  // up. They and `detector` must outlive this.
  Health(Mesh& mesh, const HealthOptions& options, StopSignal& failed, RankLease& lease,
         Recorder::EventBuffer& events, HangDetector& detector);
  ~Health();
  // REQUIRES: everything that the detector reads exists.
  void start();

  std::chrono::nanoseconds timeout() const { return std::chrono::nanoseconds(timeout_ns_); }
  // The loss that this job fails with: the first one that this rank learned of.
  std::optional<Error> loss() const { return loss_.get(); }
  // Decides on the loss after a data connection failed with `suspect`. The cause is often a rank
  // that died first, so this waits up to a second for that news; less after Error(kTimeout).
  Error resolve_loss(const Error& suspect);
  // This rank cannot continue: all ranks fail with its loss and `text`.
  void report_failure(const std::string& text);

  // Sends kBye, so that the others do not take this rank for lost, and ends the thread.
  void shut_down();
  // REQUIRES: shut_down() has returned.
  size_t undelivered_bytes();

 private:
  struct Peer {
    std::optional<FramedChannel> channel;
    int rank = 0;
    bool is_ready = false;  // something has arrived, or the kernel takes more
    uint64_t heard_ns = 0;
    uint64_t reached_ns = 0;   // the last thing sent that it has surely received, when it was sent
    uint64_t answered_ns = 0;  // when its last answer was sent, by its clock
    ProcessIdentity identity;
    // While it is silent.
    bool probed = false;
    uint64_t probe_ns = 0;      // 0: not yet
    bool asked_prober = false;  // another rank was asked to probe it
    ProcessState state = ProcessState::kUnknown;
  };
  void run();
  void watch();
  void give_up(const std::string& why) noexcept;
  void turn(uint64_t now);
  void send_identity();
  void receive_all(Peer& peer, uint64_t now);
  void take(Peer& peer, const Frame& frame);
  void take_ping(Peer& peer, const Frame& frame);
  void take_pong(Peer& peer, const Frame& frame);
  void note_reached(Peer& peer, uint64_t sent_ns);
  void extend_lease();
  void take_news(const Error& error, int reporter);
  void take_order(Peer& peer, const Frame& frame);
  void pulse(uint64_t now);
  void check_silence(uint64_t now);
  void suspect(Peer& peer, uint64_t now);
  Peer* prober_for(const Peer& peer, uint64_t now);
  uint64_t next_look_ns(const Peer& peer) const;
  bool is_lost(const Peer& peer, uint64_t now) const;
  std::string silence_text(const Peer& peer, uint64_t now) const;
  void explain(uint64_t now);
  void report(uint64_t now);
  std::vector<RankView> liveness_views(uint64_t now) const;
  void show_all(const std::string& page);
  void lose(const Error& error);
  void notify_others(const Error& loss);
  void send_frame(Peer& peer, FrameKind kind, Bytes payload);
  Peer* find(int rank);
  bool on_one_host(int a, int b) const;
  uint64_t silent_ns(const Peer& peer, uint64_t now) const;
  void sleep(uint64_t until_ns);

  const int rank_;
  const Topology topology_;
  const LogLevel log_level_;
  const uint64_t timeout_ns_;
  const uint64_t interval_ns_;
  const ProcessIdentity self_;
  JobLoss loss_;  // has a lock of its own
  RankLease& lease_;
  Recorder::EventBuffer& events_;
  HangDetector& hang_detector_;
  std::vector<Peer> peers_;
  uint64_t pings_ = 0;
  uint64_t next_pulse_ns_ = 0;
  uint64_t next_check_ns_ = 0;
  bool notified_ = false;

  WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  std::thread thread_;
};

}  // namespace hvdtune
