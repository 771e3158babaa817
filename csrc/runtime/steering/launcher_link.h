// Rank 0's connection to the launcher.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "runtime/framed_channel.h"
#include "transport/mesh.h"

namespace hvdtune {

// Sends reports and receives orders. Does nothing on other ranks and without a launcher.
//
// Thread rule: the holder of CycleThread's progress lock, which guards channel_.
class LauncherLink {
 public:
  // Takes the mesh's connection, on rank 0.
  LauncherLink(Mesh& mesh, LogLevel log_level) : rank_(mesh.topology.rank), log_level_(log_level) {
    if (!mesh.job || rank_ != 0) return;
    channel_ = std::make_unique<FramedChannel>(std::move(*mesh.job), rank_);
    mesh.job.reset();
  }

  // Never waits.
  void send(FrameKind kind, Bytes payload) {
    if (channel_) channel_->queue(kind, payload);
  }
  // Calls take(frame) for each frame that has arrived. Returns false once, when the launcher has
  // disconnected.
  template <typename Take>
  bool receive(const Take& take) {
    if (!channel_) return true;
    try {
      channel_->flush();
      while (const auto frame = channel_->receive()) take(*frame);
    } catch (const Error& error) {
      // Training continues with the setting in use.
      log(LogLevel::kWarning, log_level_, rank_,
          std::string("The launcher has disconnected; training continues: ") + error.what());
      channel_.reset();
      return false;
    }
    return true;
  }
  // Waits a short time for delivery, then disconnects. The launcher may then form another job.
  void disconnect();

  void add_to(std::vector<pollfd>& polls) const {
    if (channel_) polls.push_back(poll_entry(*channel_));
  }

 private:
  const int rank_;
  const LogLevel log_level_;
  std::unique_ptr<FramedChannel> channel_;
};

}  // namespace hvdtune
