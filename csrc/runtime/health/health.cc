#include "runtime/health/health.h"

#include <poll.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "wire/codec.h"
#include "wire/message.h"

namespace hvdtune {
namespace {

constexpr int kQuickPings = 8;  // a first estimate of the clock offset, soon after start
constexpr uint64_t kQuickNs = 10'000'000;
constexpr uint64_t kMillisecond = 1'000'000;
constexpr uint64_t kTenthOfSecond = 100 * kMillisecond;
// How long a prober may take before silence alone decides, and how often it is asked again.
constexpr uint64_t kProberNs = 200 * kMillisecond;
constexpr uint64_t kProbeAgainNs = 1000 * kMillisecond;
// A stack takes milliseconds to be written.
constexpr uint64_t kReportTurnNs = 10 * kMillisecond;
// A lease is shorter than the timeout by this part of it. The rates of two hosts' clocks differ by
// less, and the work under a lease takes less.
constexpr uint64_t kLeaseMargin = 20;

uint64_t count(std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); }

}  // namespace

Health::Health(Mesh& mesh, const HealthOptions& options, StopSignal& failed, RankLease& lease,
               Recorder::EventBuffer& events, HangDetector& detector)
    : rank_(mesh.topology.rank),
      topology_(mesh.topology),
      log_level_(options.log_level),
      timeout_ns_(count(options.timeout)),
      interval_ns_(std::clamp(timeout_ns_ / 4, 20 * kMillisecond, 500 * kMillisecond)),
      self_(own_identity()),
      loss_(failed),
      lease_(lease),
      events_(events),
      hang_detector_(detector) {
  const uint64_t now = now_ns();
  for (std::optional<SecureChannel>& channel : mesh.health) {
    if (!channel) continue;
    Peer& peer = peers_.emplace_back();
    peer.rank = channel->peer;
    peer.heard_ns = now;
    peer.channel.emplace(std::move(*channel), rank_);
  }
}

void Health::start() {
  const uint64_t now = now_ns();
  for (Peer& peer : peers_) peer.heard_ns = now;
  extend_lease();
  if (!peers_.empty()) thread_ = std::thread(&Health::run, this);
}

Health::~Health() { shut_down(); }

Error Health::resolve_loss(const Error& suspect) {
  // A connection that broke may be the echo of a death that rank 0 hears of. If it was silent for
  // that long, rank 0 has noticed by now, or never will.
  loss_.await(std::chrono::milliseconds(suspect.code() == ErrorCode::kTimeout ? 200 : 1000));
  loss_.note({ErrorCode::kRankLost, suspect.what(), suspect.rank()}, rank_);
  wake_.notify();
  loss_.publish();
  return *loss();
}

void Health::report_failure(const std::string& text) {
  loss_.note({ErrorCode::kRankLost, text, rank_});
  wake_.notify();
}

void Health::shut_down() {
  leaving_.store(true);
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

size_t Health::undelivered_bytes() {
  size_t bytes = 0;
  for (Peer& peer : peers_) bytes += peer.channel ? peer.channel->undelivered_bytes() : 0;
  return bytes;
}

void Health::run() {
  try {
    watch();
    if (const auto loss = this->loss()) notify_others(*loss);
    FAILPOINT("health/bye");
    for (Peer& peer : peers_) send_frame(peer, FrameKind::kBye, {});
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

// Without this thread no rank would notice a death, so the job ends for all ranks.
void Health::give_up(const std::string& why) noexcept {
  try {
    lose({ErrorCode::kRankLost,
          "rank " + std::to_string(rank_) + " failed: it cannot monitor the other ranks: " + why,
          rank_});
  } catch (const std::exception&) {
    // The notice was not sent: the others see the connections close.
  }
  for (Peer& peer : peers_) peer.channel.reset();
  loss_.publish();
}

void Health::watch() {
  next_pulse_ns_ = now_ns();
  uint64_t last_turn_ns = next_pulse_ns_;
  send_identity();
  while (!leaving_.load()) {
    const uint64_t now = now_ns();
    // If this process itself was stopped, the others' silence is its own deafness.
    if (now - last_turn_ns > 2 * interval_ns_) {
      for (Peer& peer : peers_) peer.heard_ns += now - last_turn_ns;
    }
    last_turn_ns = now;
    turn(now);
    uint64_t until = std::min(next_pulse_ns_, next_check_ns_);
    if (hang_detector_.is_reporting()) until = std::min(until, now + kReportTurnNs);
    sleep(until);
  }
}

void Health::turn(uint64_t now) {
  for (Peer& peer : peers_) {
    if (std::exchange(peer.is_ready, false)) receive_all(peer, now);
  }
  pulse(now);
  check_silence(now);
  report(now);
  if (rank_ == 0) explain(now);
  if (const auto loss = this->loss()) notify_others(*loss);
}

void Health::send_identity() {
  FAILPOINT("health/send_identity");
  for (Peer& peer : peers_) send_frame(peer, FrameKind::kIdentity, encode(self_));
}

void Health::sleep(uint64_t until_ns) {
  std::vector<pollfd> fds = {{wake_.fd(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (!peer.channel) continue;
    const short events = peer.channel->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    fds.push_back({peer.channel->fd(), events, 0});
  }
  poll(fds.data(), fds.size(), Deadline::at(until_ns).poll_ms());
  auto polled = fds.begin();
  for (Peer& peer : peers_) {
    if (peer.channel) peer.is_ready = (++polled)->revents != 0;
  }
  wake_.drain();
}

void Health::receive_all(Peer& peer, uint64_t now) {
  try {
    if (peer.channel) peer.channel->flush();
    while (peer.channel) {
      const std::optional<Frame> frame = peer.channel->receive();
      if (!frame) return;
      FAILPOINT_ON("health/received", peer.channel->fd());
      peer.heard_ns = now;
      peer.probed = false;
      peer.probe_ns = 0;
      peer.state = ProcessState::kUnknown;
      take(peer, *frame);
    }
  } catch (const Error& error) {
    peer.channel.reset();
    lose({ErrorCode::kRankLost,
          "rank " + std::to_string(peer.rank) + " " +
              (error.code() == ErrorCode::kRankLost
                   ? "closed its connection: the process exited or was killed"
                   : error.what()),
          peer.rank});
  }
}

void Health::take(Peer& peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kPing:
      return take_ping(peer, frame);
    case FrameKind::kPong:
      return take_pong(peer, frame);
    case FrameKind::kLost: {
      const Notice notice = decode_notice(frame.payload);
      return take_news({ErrorCode::kRankLost, notice.text, notice.subject}, peer.rank);
    }
    case FrameKind::kGiveUp: {
      const Notice notice = decode_notice(frame.payload);
      return take_news({ErrorCode::kHang, notice.text, notice.subject}, -1);
    }
    case FrameKind::kBye:
      peer.channel.reset();
      return extend_lease();
    default:
      return take_order(peer, frame);
  }
}

// Requests of rank 0, and their answers.
void Health::take_order(Peer& peer, const Frame& frame) {
  const uint64_t now = now_ns();
  switch (frame.kind) {
    case FrameKind::kIdentity:
      peer.identity = decode_identity(frame.payload);
      return;
    case FrameKind::kProbeRequest: {
      const ProbeRequest look = decode_probe_request(frame.payload);
      const ProbeResult seen{look.rank, probe_process(look.who, self_)};
      return send_frame(peer, FrameKind::kProbeResult, encode(seen));
    }
    case FrameKind::kProbeResult: {
      const ProbeResult seen = decode_probe_result(frame.payload);
      Peer* suspect = find(seen.rank);
      if (suspect != nullptr && suspect->probe_ns > 0) suspect->state = seen.state;
      return;
    }
    case FrameKind::kAsk:
      return hang_detector_.begin_report(Reader(frame.payload).get<uint32_t>(), now);
    case FrameKind::kReport:
      if (rank_ == 0) hang_detector_.note(peer.rank, decode_report(frame.payload));
      return;
    case FrameKind::kPage:
      return log(LogLevel::kWarning, log_level_, rank_, decode_notice(frame.payload).text);
    default:
      throw Error(ErrorCode::kInternal, "sent an unexpected message", peer.rank);
  }
}

void Health::take_ping(Peer& peer, const Frame& frame) {
  const Pulse pulse = decode_pulse(frame.payload);
  if (rank_ == 0) hang_detector_.note(peer.rank, pulse, now_ns());
  note_reached(peer, pulse.heard_ns);
  Writer reply;
  reply.put(pulse.sent_ns);
  reply.put(now_ns());
  send_frame(peer, FrameKind::kPong, reply.take());
}

void Health::take_pong(Peer& peer, const Frame& frame) {
  Reader in(frame.payload);
  const uint64_t sent = in.get<uint64_t>();
  const uint64_t theirs = in.get<uint64_t>();
  note_reached(peer, sent);
  if (rank_ == 0) return;  // a probe's
  // Rank 0 learns from the next ping that it was heard: the first one need not wait for its time.
  if (std::exchange(peer.answered_ns, theirs) == 0) next_pulse_ns_ = now_ns();
  const uint64_t round_trip = now_ns() - sent;
  const uint64_t middle = sent + round_trip / 2;
  events_.keep(clock_record(middle, round_trip, static_cast<int64_t>(theirs - middle)));
}

// The peer has received the frame that was sent then.
void Health::note_reached(Peer& peer, uint64_t sent_ns) {
  peer.reached_ns = std::max(peer.reached_ns, std::min(sent_ns, now_ns()));
  extend_lease();
}

// A rank that has received something does not give up its sender before the timeout from then on. A
// rank that has left gives up no rank.
void Health::extend_lease() {
  uint64_t until = RankLease::kForEver;
  for (const Peer& peer : peers_) {
    if (!peer.channel) continue;
    const uint64_t lasts = peer.reached_ns + timeout_ns_ - timeout_ns_ / kLeaseMargin;
    until = std::min(until, peer.reached_ns == 0 ? 0 : lasts);
  }
  lease_.extend(until);
}

void Health::take_news(const Error& error, int reporter) {
  loss_.note(error, reporter);
  notified_ = rank_ != 0;  // rank 0 passes it on
  loss_.publish();
}

void Health::pulse(uint64_t now) {
  if (now < next_pulse_ns_) return;
  next_pulse_ns_ = now + (++pings_ < kQuickPings ? std::min(kQuickNs, interval_ns_) : interval_ns_);
  Pulse pulse = hang_detector_.pulse(now_ns());
  if (rank_ == 0) return hang_detector_.note(0, pulse, now);
  FAILPOINT("health/pulse");
  for (Peer& peer : peers_) {
    pulse.heard_ns = peer.answered_ns;
    send_frame(peer, FrameKind::kPing, encode(pulse));
  }
}

uint64_t Health::silent_ns(const Peer& peer, uint64_t now) const {
  return now > peer.heard_ns ? now - peer.heard_ns : 0;
}

void Health::check_silence(uint64_t now) {
  next_check_ns_ = now + timeout_ns_;
  for (Peer& peer : peers_) {
    // Frames that arrived since the last turn count, however late this thread reads them.
    if (silent_ns(peer, now) >= timeout_ns_ / 2) receive_all(peer, now);
    if (!peer.channel) continue;
    const uint64_t silent = silent_ns(peer, now);
    // It answers this at once, and its kernel acknowledges it even if it cannot.
    if (silent >= timeout_ns_ / 2 && !std::exchange(peer.probed, true)) {
      send_frame(peer, FrameKind::kPing, encode(Pulse{now, 0, 0}));
    }
    if (silent >= timeout_ns_) suspect(peer, now);
    if (silent >= timeout_ns_ && is_lost(peer, now)) {
      lose({ErrorCode::kRankLost, silence_text(peer, now), peer.rank});
      peer.channel.reset();
    } else {
      next_check_ns_ = std::min(next_check_ns_, next_look_ns(peer));
    }
  }
}

uint64_t Health::next_look_ns(const Peer& peer) const {
  if (peer.probe_ns > 0) {
    return peer.probe_ns + (peer.state == ProcessState::kUnknown ? kProberNs : kProbeAgainNs);
  }
  return peer.heard_ns + (peer.probed ? timeout_ns_ : timeout_ns_ / 2);
}

void Health::suspect(Peer& peer, uint64_t now) {
  if (peer.probe_ns > 0 &&
      (peer.state != ProcessState::kRuns || now < peer.probe_ns + kProbeAgainNs)) {
    return;
  }
  FAILPOINT("health/suspect");
  peer.probe_ns = now;
  peer.asked_prober = false;
  if (on_one_host(rank_, peer.rank)) {
    peer.state = probe_process(peer.identity, self_);
  } else if (Peer* prober = rank_ == 0 ? prober_for(peer, now) : nullptr) {
    peer.asked_prober = true;
    peer.state = ProcessState::kUnknown;
    send_frame(*prober, FrameKind::kProbeRequest, encode(ProbeRequest{peer.rank, peer.identity}));
  }
}

// Another rank of its host that is not silent itself.
Health::Peer* Health::prober_for(const Peer& peer, uint64_t now) {
  const auto found = std::ranges::find_if(peers_, [&](const Peer& other) {
    return other.channel && other.rank != peer.rank && on_one_host(other.rank, peer.rank) &&
           silent_ns(other, now) < timeout_ns_ / 2;
  });
  return found == peers_.end() ? nullptr : &*found;
}

bool Health::is_lost(const Peer& peer, uint64_t now) const {
  switch (peer.state) {
    case ProcessState::kStopped:
    case ProcessState::kGone:
      return true;
    case ProcessState::kRuns:
      return silent_ns(peer, now) >= kStarvedTimeouts * timeout_ns_ ||
             is_unacknowledged(peer.channel->fd(), timeout_ns_ / 2);
    case ProcessState::kUnknown:
      return !peer.asked_prober || now >= peer.probe_ns + kProberNs;
  }
  return true;
}

std::string Health::silence_text(const Peer& peer, uint64_t now) const {
  const uint64_t silent = silent_ns(peer, now) / kTenthOfSecond * kTenthOfSecond;
  const std::chrono::nanoseconds shown(std::max(silent, timeout_ns_));
  const std::string who =
      "rank " + std::to_string(peer.rank) + " has not answered for " + seconds_text(shown);
  if (peer.state == ProcessState::kStopped) return who + ": its process is stopped";
  if (peer.state == ProcessState::kGone) return who + ": its process has ended";
  if (is_unacknowledged(peer.channel->fd(), timeout_ns_ / 2)) {
    return who + ": its host cannot be reached";
  }
  if (peer.state == ProcessState::kRuns) return who + ", although its process runs";
  return who + ": the process is stopped or its host cannot be reached";
}

void Health::report(uint64_t now) {
  std::optional<RankReport> report = hang_detector_.finish_report(now);
  if (!report) return;
  if (rank_ == 0) return hang_detector_.note(0, std::move(*report));
  FAILPOINT("health/report");
  for (Peer& peer : peers_) send_frame(peer, FrameKind::kReport, encode(*report));
}

std::vector<RankView> Health::liveness_views(uint64_t now) const {
  std::vector<RankView> views(static_cast<size_t>(topology_.size));
  for (const Peer& peer : peers_) {
    RankView& view = views[static_cast<size_t>(peer.rank)];
    view.silent_ns = silent_ns(peer, now);
    if (!peer.channel) {
      view.liveness = Liveness::kDead;
    } else if (view.silent_ns >= 3 * interval_ns_) {
      const bool heard = !is_unacknowledged(peer.channel->fd(), interval_ns_);
      view.liveness = heard ? Liveness::kFrozen : Liveness::kUnreachable;
    }
  }
  return views;
}

void Health::explain(uint64_t now) {
  const HangStep step = hang_detector_.step(now, liveness_views(now));
  if (const auto* ask = std::get_if<AskAll>(&step)) {
    Writer round;
    round.put(ask->round);
    const std::vector<uint8_t> payload = round.take();
    for (Peer& peer : peers_) send_frame(peer, FrameKind::kAsk, payload);
    hang_detector_.begin_report(ask->round, now);
  } else if (const auto* tale = std::get_if<TellAll>(&step)) {
    show_all(tale->page);
  } else if (const auto* end = std::get_if<GiveUp>(&step)) {
    show_all(end->page);
    lose({ErrorCode::kHang, end->text, end->rank});
  }
}

void Health::show_all(const std::string& page) {
  for (Peer& peer : peers_) send_frame(peer, FrameKind::kPage, encode(Notice{0, page}));
  log(LogLevel::kWarning, log_level_, rank_, page);
}

// The other ranks hear of it first: this process may end at once because of it, and they would take
// that for the cause.
void Health::lose(const Error& error) {
  if (loss()) return;
  const auto publish = [&] {
    loss_.replace(error);
    loss_.publish();
  };
  try {
    notify_others(error);
  } catch (...) {
    publish();
    throw;
  }
  publish();
}

void Health::notify_others(const Error& loss) {
  if (std::exchange(notified_, true)) return;
  FAILPOINT("health/notify");
  const FrameKind kind = loss.code() == ErrorCode::kHang ? FrameKind::kGiveUp : FrameKind::kLost;
  const std::vector<uint8_t> notice = encode(Notice{loss.rank(), loss.what()});
  const int reporter = loss_.reporter();
  for (Peer& peer : peers_) {
    // The rank that is lost as well. If it lives, only its connection to another broke, and for it
    // the other is the one that is lost.
    if (peer.rank == loss.rank() && reporter >= 0) {
      const std::string who = "rank " + std::to_string(reporter);
      send_frame(peer, kind, encode(Notice{reporter, who + " has lost this rank: " + loss.what()}));
    } else {
      send_frame(peer, kind, notice);
    }
  }
}

void Health::send_frame(Peer& peer, FrameKind kind, Bytes payload) {
  if (!peer.channel) return;
  FAILPOINT_ON("health/send", peer.channel->fd());
  peer.channel->queue(kind, payload);
}

Health::Peer* Health::find(int rank) {
  const auto found = std::ranges::find(peers_, rank, &Peer::rank);
  return found == peers_.end() ? nullptr : &*found;
}

bool Health::on_one_host(int a, int b) const {
  return std::ranges::any_of(topology_.hosts, [&](const std::vector<int>& ranks) {
    return std::ranges::count(ranks, a) > 0 && std::ranges::count(ranks, b) > 0;
  });
}

}  // namespace hvdtune
