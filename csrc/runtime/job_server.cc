#include "runtime/job_server.h"

#include <poll.h>

#include <utility>

#include "base/clock.h"
#include "runtime/framed_channel.h"

namespace hvdtune {
namespace {

// How soon strangers are turned away again when there was no descriptor left to do it with.
constexpr int kTurnAwayAgainMs = 100;

}  // namespace

JobServer::JobServer(const JobServerOptions& options)
    : options_(options), listener_(options.bind_address, options.port), port_(listener_.port()) {
  failed_start_.report = [this](const Error& error) {
    publish(JobLost{error.rank(), error.what()});
  };
  thread_ = std::thread(&JobServer::run, this);
}

JobServer::~JobServer() { close(); }

std::optional<JobEvent> JobServer::next_event(std::chrono::nanoseconds time) {
  const auto until = wait_limit(time);
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_until(lock, until, [&] { return !events_.empty(); })) return std::nullopt;
  JobEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void JobServer::propose(const Proposal& proposal) {
  {
    const std::lock_guard lock(mutex_);
    proposals_.push_back(proposal);
  }
  wake_.notify();
}

void JobServer::order(const TimelineOrder& order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(order);
  }
  wake_.notify();
}

void JobServer::close() {
  stop_.raise();
  if (thread_.joinable()) thread_.join();
}

void JobServer::abort(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (failed_start_.abort.raised()) return;
  failed_start_.why = why;
  failed_start_.abort.raise();
}

void JobServer::publish(JobEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  arrived_.notify_all();
}

std::vector<Proposal> JobServer::take_proposals() {
  const std::lock_guard lock(mutex_);
  return std::exchange(proposals_, {});
}

std::vector<TimelineOrder> JobServer::receive_orders() {
  const std::lock_guard lock(mutex_);
  return std::exchange(orders_, {});
}

void JobServer::run() {
  bool hung_up = true;
  for (uint32_t generation = options_.generation; hung_up && !stop_.raised(); ++generation) {
    try {
      hold_job(generation);
    } catch (const Error& error) {
      hung_up = error.code() == ErrorCode::kRankLost;
      if (!hung_up && error.code() != ErrorCode::kShutdown) {
        publish(JobLost{error.rank(), error.what()});
      }
    }
    publish(JobClosed{});
  }
  listener_.close();
}

void JobServer::hold_job(uint32_t generation) {
  const FormationOptions formation{options_.key, options_.size, generation, options_.start_timeout};
  const auto all_connected = [this](std::vector<RankInfo> members) {
    publish(JobFormed{std::move(members)});
  };
  std::vector<SecureChannel> channels =
      form_job(listener_, formation, stop_, all_connected, &failed_start_);
  serve(std::move(channels[0]));
}

void JobServer::serve(SecureChannel rank_0) {
  FramedChannel channel(std::move(rank_0), kStoreRank);
  while (!stop_.raised()) {
    for (const Proposal& proposal : take_proposals()) {
      channel.queue(FrameKind::kPropose, encode(proposal));
    }
    for (const TimelineOrder& order : receive_orders()) {
      channel.queue(FrameKind::kTimeline, encode(order));
    }
    channel.flush();
    while (const auto frame = channel.receive()) {
      if (frame->kind == FrameKind::kStep) {
        publish(decode_step_report(frame->payload));
      } else if (frame->kind == FrameKind::kAdopted) {
        publish(JobAdopted{static_cast<uint32_t>(decode_notice(frame->payload).subject)});
      } else if (frame->kind == FrameKind::kLeft) {
        publish(JobLeft{decode_notice(frame->payload).subject});
      } else if (frame->kind == FrameKind::kDeclared) {
        publish(JobDeclared{decode_notice(frame->payload).text});
      } else if (frame->kind == FrameKind::kLost) {
        const Notice notice = decode_notice(frame->payload);
        publish(JobLost{notice.subject, notice.text});
      }
    }
    const bool emptied = listener_.turn_away();
    const short events = channel.has_unsent() ? POLLIN | POLLOUT : POLLIN;
    pollfd fds[] = {{stop_.fd(), POLLIN, 0},
                    {wake_.fd(), POLLIN, 0},
                    {channel.fd(), events, 0},
                    {emptied ? listener_.fd() : -1, POLLIN, 0}};
    poll(fds, 4, emptied ? -1 : kTurnAwayAgainMs);
    wake_.drain();
  }
}

}  // namespace hvdtune
