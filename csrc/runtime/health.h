// Who is alive. A thread of its own, which never takes Python's lock and never waits for data, so
// that a rank busy for minutes still answers.
//
// Every rank pings rank 0; rank 0 answers. A connection that closes without a farewell is a dead
// rank at once; silence for the heartbeat timeout is a stopped one. Rank 0 tells all others. The
// pings also measure each rank's clock against rank 0's, as NTP does (RFC 5905, section 8).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/stop.h"
#include "runtime/framed_channel.h"
#include "timeline/recorder.h"
#include "transport/mesh.h"

namespace hvdtune {

// Thread rule: public members may be called from any thread; channels_ and peers_ belong to the
// health thread.
class Health {
 public:
  // `failed` is raised when a rank is lost.
  Health(Mesh& mesh, std::chrono::nanoseconds timeout, StopSignal& failed, Recorder::Lane& lane);
  ~Health();

  // The loss this job fails with; the first one seen stands.
  std::optional<Error> loss() const;
  // What a data connection saw. The cause is often another rank that died first, so this waits up
  // to a second for that news before it settles on `suspect`.
  Error settle_loss(const Error& suspect);
  // This rank cannot go on, which the others take as its loss.
  void tell_failure(const std::string& why);

  // Says farewell, so that leaving is not taken for dying, and ends the thread.
  void leave();

 private:
  struct Peer {
    std::optional<FramedChannel> channel;
    uint64_t heard_ns = 0;
  };
  void run();
  void receive_all(Peer& peer, uint64_t now);
  void take(Peer& peer, const Frame& frame);
  void ping(uint64_t now);
  void check_silence(uint64_t now);
  void lose(int rank, const std::string& text);
  void tell_others(int rank, const std::string& text);
  void sleep(uint64_t until_ns);
  void take_pong(const Frame& frame);

  const int rank_;
  const std::chrono::nanoseconds timeout_;
  const std::chrono::nanoseconds interval_;
  StopSignal& failed_;
  Recorder::Lane& lane_;
  std::vector<Peer> peers_;
  uint64_t pings_ = 0;
  uint64_t next_ping_ns_ = 0;
  bool told_ = false;

  WakeSignal wake_;
  std::atomic<bool> leaving_{false};
  mutable std::mutex mutex_;  // guards loss_
  std::condition_variable lost_;
  std::optional<Error> loss_;
  std::thread thread_;
};

}  // namespace hvdtune
