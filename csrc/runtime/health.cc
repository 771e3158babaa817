#include "runtime/health.h"

#include <poll.h>

#include <algorithm>
#include <string>

#include "wire/codec.h"
#include "wire/message.h"

namespace hvdtune {
namespace {

constexpr int kQuickPings = 8;  // a first estimate of the clock offset, soon after start

std::chrono::nanoseconds ping_interval(std::chrono::nanoseconds timeout) {
  using std::chrono::milliseconds;
  return std::clamp<std::chrono::nanoseconds>(timeout / 10, milliseconds(20), milliseconds(1000));
}

uint64_t count(std::chrono::nanoseconds time) { return static_cast<uint64_t>(time.count()); }

}  // namespace

Health::Health(Mesh& mesh, std::chrono::nanoseconds timeout, StopSignal& failed,
               Recorder::Lane& lane)
    : rank_(mesh.topology.rank),
      timeout_(timeout),
      interval_(ping_interval(timeout)),
      failed_(failed),
      lane_(lane) {
  const uint64_t now = now_ns();
  for (std::optional<Channel>& channel : mesh.health) {
    if (!channel) continue;
    peers_.push_back({FramedChannel(std::move(*channel), rank_), now});
  }
  if (!peers_.empty()) thread_ = std::thread(&Health::run, this);
}

Health::~Health() { leave(); }

std::optional<Error> Health::loss() const {
  const std::lock_guard lock(mutex_);
  return loss_;
}

Error Health::settle_loss(const Error& suspect) {
  {
    std::unique_lock lock(mutex_);
    lost_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(1),
                     [&] { return loss_.has_value(); });
    if (!loss_) loss_ = suspect;
  }
  wake_.notify();
  failed_.raise();
  return *loss();
}

void Health::tell_failure(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!loss_) {
      const std::string text = "rank " + std::to_string(rank_) + " failed: " + why;
      loss_ = Error(ErrorCode::kRankLost, text, rank_);
    }
  }
  wake_.notify();
}

void Health::leave() {
  leaving_.store(true);
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void Health::run() {
  next_ping_ns_ = now_ns();
  uint64_t last_turn_ns = next_ping_ns_;
  while (!leaving_.load()) {
    const uint64_t now = now_ns();
    // If this process itself was stopped, the others' silence is its own deafness.
    if (now - last_turn_ns > 3 * count(interval_)) {
      for (Peer& peer : peers_) peer.heard_ns += now - last_turn_ns;
    }
    last_turn_ns = now;
    for (Peer& peer : peers_) receive_all(peer, now);
    ping(now);
    check_silence(now);
    if (const auto loss = this->loss()) tell_others(loss->rank(), loss->what());
    sleep(rank_ == 0 ? now + count(interval_) : next_ping_ns_);
  }
  if (const auto loss = this->loss()) tell_others(loss->rank(), loss->what());
  for (Peer& peer : peers_) {
    if (peer.channel) peer.channel->queue(FrameKind::kBye, {});
  }
}

void Health::sleep(uint64_t until_ns) {
  std::vector<pollfd> fds = {{wake_.fd(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    if (!peer.channel) continue;
    const short events = peer.channel->has_unsent() ? POLLIN | POLLOUT : POLLIN;
    fds.push_back({peer.channel->fd(), events, 0});
  }
  poll(fds.data(), fds.size(), Deadline::at(until_ns).poll_ms());
  wake_.drain();
}

void Health::receive_all(Peer& peer, uint64_t now) {
  try {
    if (peer.channel) peer.channel->flush();
    while (peer.channel) {
      const std::optional<Frame> frame = peer.channel->receive();
      if (!frame) return;
      peer.heard_ns = now;
      take(peer, *frame);
    }
  } catch (const Error& error) {
    const int rank = peer.channel->peer();
    peer.channel.reset();
    lose(rank, error.code() == ErrorCode::kRankLost
                   ? "closed its connection: the process exited or was killed"
                   : error.what());
  }
}

void Health::take(Peer& peer, const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kPing: {
      Writer reply;
      reply.put(Reader(frame.payload).get<uint64_t>());
      reply.put(now_ns());
      peer.channel->queue(FrameKind::kPong, reply.take());
      return;
    }
    case FrameKind::kPong:
      return take_pong(frame);
    case FrameKind::kLost: {
      const Notice notice = decode_notice(frame.payload);
      {
        const std::lock_guard lock(mutex_);
        if (!loss_) loss_ = Error(ErrorCode::kRankLost, notice.text, notice.subject);
      }
      told_ = rank_ != 0;  // rank 0 passes it on
      lost_.notify_all();
      return failed_.raise();
    }
    case FrameKind::kBye:
      return peer.channel.reset();
    default:
      throw Error(ErrorCode::kInternal, "sent a message of the wrong kind", peer.channel->peer());
  }
}

void Health::take_pong(const Frame& frame) {
  Reader in(frame.payload);
  const uint64_t sent = in.get<uint64_t>();
  const uint64_t theirs = in.get<uint64_t>();
  const uint64_t round_trip = now_ns() - sent;
  const uint64_t middle = sent + round_trip / 2;
  lane_.record(clock_record(middle, round_trip, static_cast<int64_t>(theirs - middle)));
}

void Health::ping(uint64_t now) {
  if (rank_ == 0 || now < next_ping_ns_) return;
  const auto quick = std::chrono::milliseconds(10);
  next_ping_ns_ =
      now + count(++pings_ < kQuickPings ? std::min<std::chrono::nanoseconds>(quick, interval_)
                                         : interval_);
  for (Peer& peer : peers_) {
    if (!peer.channel) continue;
    Writer out;
    out.put(now_ns());
    peer.channel->queue(FrameKind::kPing, out.take());
  }
}

void Health::check_silence(uint64_t now) {
  for (Peer& peer : peers_) {
    if (!peer.channel || now < peer.heard_ns + count(timeout_)) continue;
    const int rank = peer.channel->peer();
    peer.channel.reset();
    const auto seconds = std::chrono::duration<double>(timeout_).count();
    std::string text = std::to_string(seconds);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    lose(rank, "has not answered for " + text +
                   " s: the process is stopped or its host cannot be reached");
  }
}

void Health::lose(int rank, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (loss_) return;
    loss_ = Error(ErrorCode::kRankLost, "rank " + std::to_string(rank) + " " + text, rank);
  }
  lost_.notify_all();
  tell_others(rank, loss()->what());
  failed_.raise();
}

void Health::tell_others(int rank, const std::string& text) {
  if (told_) return;
  told_ = true;
  for (Peer& peer : peers_) {
    if (!peer.channel || peer.channel->peer() == rank) continue;
    peer.channel->queue(FrameKind::kLost, encode(Notice{rank, text}));
  }
}

}  // namespace hvdtune
