#include "transport/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/plural.h"
#include "base/status.h"
#include "transport/store_stream.h"

namespace hvdtune {
namespace {

std::string place_of(const RankInfo& member) {
  return "pid " + std::to_string(member.pid) + " on " + member.host;
}

enum class FormationPhase : uint8_t { kRegister, kConnect, kGo };

class Formation {
 public:
  Formation(Listener& listener, const FormationOptions& options, AllConnected all_connected,
            FailedStart* failed)
      : all_connected_(std::move(all_connected)),
        failed_(failed),
        acceptor_(listener, options.key, kStoreRank, options.generation),
        size_(options.size),
        ranks_(static_cast<size_t>(options.size)) {}

  std::vector<SecureChannel> run(std::chrono::nanoseconds timeout, const StopSignal& stop);

 private:
  struct Rank {
    std::optional<StoreStream> stream;
    RankInfo member;
    bool connected = false;
    bool released = false;
  };

  std::vector<RankInfo> members() const;
  void wait(Deadline deadline, const StopSignal& stop);
  void step(Deadline deadline, const StopSignal& stop);
  bool is_aborted() const { return failed_ != nullptr && failed_->abort.raised(); }
  void refuse_from_now_on(const Error& error);
  void report_once();
  void admit();
  void receive_registrations();
  bool receive_registration(StoreStream& stream);
  bool is_second(const StoreStream& stream, const StoreMessage::Registration& registration) const;
  std::optional<std::string> refusal_reason(const StoreStream& stream,
                                            const StoreMessage::Registration& registration) const;
  void receive_from_ranks();
  void receive(Rank& rank);
  void advance_phase();
  bool release_ranks();
  void send_to_all(const StoreMessage& message);
  [[noreturn]] void fail(const std::string& text, int rank,
                         ErrorCode code = ErrorCode::kRendezvous);
  std::string name_of(const Rank& rank) const;
  std::string missing() const;
  bool is_anyone_there() const;

  const AllConnected all_connected_;
  FailedStart* failed_;
  std::optional<std::string> refusal_;  // the answer to every rank once the start has failed
  std::optional<Error> unreported_;     // not sent to any rank yet
  std::optional<Error> mishap_;         // of a newcomer, which ends the start
  Deadline deadline_ = Deadline::never();
  Acceptor acceptor_;
  int size_;
  FormationPhase phase_ = FormationPhase::kRegister;
  std::vector<StoreStream> newcomers_;
  std::vector<Rank> ranks_;
};

std::vector<SecureChannel> Formation::run(std::chrono::nanoseconds timeout,
                                          const StopSignal& stop) {
  bool awaited = false;
  do {
    try {
      step(refusal_ ? Deadline::never() : deadline_, stop);
      if (!awaited && is_anyone_there()) {
        awaited = true;
        deadline_ = Deadline::in(timeout);
      }
    } catch (const Error& error) {
      if (failed_ == nullptr || error.code() != ErrorCode::kRendezvous) throw;
      awaited |= is_anyone_there();
      refuse_from_now_on(error);
      if (awaited) report_once();
    }
  } while (phase_ != FormationPhase::kGo || !release_ranks());
  std::vector<SecureChannel> channels;
  for (Rank& rank : ranks_) channels.push_back(rank.stream->take());
  return channels;
}

void Formation::step(Deadline deadline, const StopSignal& stop) {
  wait(deadline, stop);
  admit();
  receive_registrations();
  if (phase_ != FormationPhase::kGo) receive_from_ranks();
  // Last: a rank that has ended may have sent the reason.
  if (is_aborted() && !refusal_) fail(failed_->why, -1);
  if (!refusal_) advance_phase();
}

bool Formation::is_anyone_there() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.stream.has_value(); });
}

void Formation::refuse_from_now_on(const Error& error) {
  phase_ = FormationPhase::kRegister;
  refusal_ = error.what();
  for (Rank& rank : ranks_) rank.stream.reset();
  unreported_ = error;
}

void Formation::report_once() {
  if (unreported_) failed_->report(*std::exchange(unreported_, std::nullopt));
}

std::vector<RankInfo> Formation::members() const {
  std::vector<RankInfo> members;
  for (const Rank& rank : ranks_) members.push_back(rank.member);
  return members;
}

void Formation::wait(Deadline deadline, const StopSignal& stop) {
  std::vector<pollfd> polls = {{stop.fd(), POLLIN, 0}};
  if (failed_ != nullptr && !refusal_) polls.push_back({failed_->abort.fd(), POLLIN, 0});
  acceptor_.add_to(polls);
  for (const StoreStream& stream : newcomers_) polls.push_back({stream.fd(), stream.events(), 0});
  for (const Rank& rank : ranks_) {
    if (!rank.stream || rank.released) continue;
    // Once all may go, messages of a rank belong to the job and are not read here.
    const short events = phase_ == FormationPhase::kGo ? short{POLLOUT} : rank.stream->events();
    polls.push_back({rank.stream->fd(), events, 0});
  }
  const uint64_t until = std::min(deadline.at_ns(), acceptor_.next_expiry().at_ns());
  if (poll(polls.data(), polls.size(), Deadline::at(until).poll_ms()) < 0 && errno != EINTR) {
    throw system_failure("poll", errno);
  }
  if (stop.raised()) fail("the job was stopped during start-up", -1, ErrorCode::kShutdown);
  if (deadline.passed()) fail("start-up timed out: " + missing(), -1);
}

void Formation::admit() {
  for (Accepted& accepted : acceptor_.advance()) {
    if (accepted.purpose == Purpose::kStore) {
      newcomers_.emplace_back(std::move(accepted.channel), true);
    }
  }
}

void Formation::receive_registrations() {
  // Nothing may be thrown meanwhile: streams that became ranks would stay, as empty shells.
  std::erase_if(newcomers_, [this](StoreStream& stream) { return receive_registration(stream); });
  if (mishap_) {
    const Error error = *std::exchange(mishap_, std::nullopt);
    fail(error.what(), error.rank());
  }
}

// True once it has become a rank or was sent away. Throws nothing.
bool Formation::receive_registration(StoreStream& stream) {
  try {
    const std::optional<StoreMessage> message = stream.try_receive();
    if (!message) return false;
    if (message->type != StoreMessageType::kRegister) return true;
    const StoreMessage::Registration registration = message->as_registration();
    const std::optional<std::string> text = refusal_reason(stream, registration);
    if (text) {
      // The others would wait in vain for the rank that this one should have been.
      if (!refusal_ && phase_ == FormationPhase::kRegister) {
        mishap_.emplace(ErrorCode::kRendezvous, *text, stream.peer());
      }
      report_once();
      stream.queue(StoreMessage::failed(*text));
      stream.flush();
      return true;
    }
    Rank& rank = ranks_[static_cast<size_t>(stream.peer())];
    rank.stream.emplace(std::move(stream));
    rank.member = registration.member;
    return true;
  } catch (const Error& error) {
    const auto index = static_cast<size_t>(stream.peer());
    const bool awaited = !refusal_ && index < ranks_.size() && !ranks_[index].stream;
    if (awaited) {
      const std::string text = "rank " + std::to_string(index) + " ended during start-up";
      mishap_.emplace(ErrorCode::kRendezvous, text, stream.peer());
    }
    return true;
  }
}

bool Formation::is_second(const StoreStream& stream,
                          const StoreMessage::Registration& registration) const {
  return !refusal_ && registration.size == size_ && stream.peer() < size_ &&
         ranks_[static_cast<size_t>(stream.peer())].stream;
}

std::optional<std::string> Formation::refusal_reason(
    const StoreStream& stream, const StoreMessage::Registration& registration) const {
  if (refusal_) return refusal_;
  const std::string who = "rank " + std::to_string(stream.peer());
  const std::string where = who + " (" + place_of(registration.member) + ")";
  if (registration.size != size_) {
    return where + " expects a job of " + counted(registration.size, "rank") + ", rank 0 one of " +
           std::to_string(size_) + "; set the same number on all ranks";
  }
  if (stream.peer() >= size_) {
    return where + " does not exist in a job of " + counted(size_, "rank");
  }
  if (!is_second(stream, registration)) return std::nullopt;
  const Rank& rank = ranks_[static_cast<size_t>(stream.peer())];
  return "two processes have " + who + ": " + place_of(rank.member) + " and " +
         place_of(registration.member) + "; set a different rank for each process";
}

void Formation::receive_from_ranks() {
  for (Rank& rank : ranks_) {
    if (!rank.stream) continue;
    try {
      receive(rank);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kRankLost) {
        fail(is_aborted() ? failed_->why : "rank " + name_of(rank) + " ended during start-up",
             rank.stream->peer());
      }
      if (error.code() == ErrorCode::kInternal) fail(error.what(), rank.stream->peer());
      throw;
    }
  }
}

void Formation::receive(Rank& rank) {
  while (const std::optional<StoreMessage> message = rank.stream->try_receive()) {
    if (message->type == StoreMessageType::kFailed) {
      fail("rank " + name_of(rank) + ": " + message->as_text(), rank.stream->peer());
    }
    const bool expected = message->type == StoreMessageType::kConnected &&
                          phase_ == FormationPhase::kConnect && !rank.connected;
    if (!expected)
      fail("rank " + name_of(rank) + " sent an unexpected message", rank.stream->peer());
    rank.connected = true;
  }
  rank.stream->flush();
}

void Formation::advance_phase() {
  const auto all = [this](auto condition) { return std::ranges::all_of(ranks_, condition); };
  if (phase_ == FormationPhase::kRegister &&
      all([](const Rank& rank) { return rank.stream.has_value(); })) {
    phase_ = FormationPhase::kConnect;
    send_to_all(StoreMessage::table(members()));
  } else if (phase_ == FormationPhase::kConnect &&
             all([](const Rank& rank) { return rank.connected; })) {
    phase_ = FormationPhase::kGo;
    if (all_connected_) all_connected_(members());
    send_to_all(StoreMessage::go());
  }
}

// A rank that is lost from here on is the job's loss, not start-up's.
bool Formation::release_ranks() {
  bool all = true;
  for (Rank& rank : ranks_) {
    if (rank.released) continue;
    try {
      rank.released = rank.stream->flush();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kRankLost) throw;
      rank.released = true;
    }
    all &= rank.released;
  }
  return all;
}

void Formation::send_to_all(const StoreMessage& message) {
  for (Rank& rank : ranks_) {
    if (!rank.stream) continue;
    rank.stream->queue(message);
    try {
      rank.stream->flush();
    } catch (const Error& error) {
      // The next read from this rank finds it again, with its name.
      if (error.code() != ErrorCode::kRankLost) throw;
    }
  }
}

void Formation::fail(const std::string& text, int rank, ErrorCode code) {
  send_to_all(StoreMessage::failed(text));
  throw Error(code, text, rank);
}

std::string Formation::name_of(const Rank& rank) const {
  return std::to_string(rank.stream->peer()) + " (" + place_of(rank.member) + ")";
}

std::string Formation::missing() const {
  std::string names;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const bool there =
        phase_ == FormationPhase::kRegister ? ranks_[i].stream.has_value() : ranks_[i].connected;
    if (!there) names += (names.empty() ? "rank " : ", rank ") + std::to_string(i);
  }
  const std::string of = names + " of " + std::to_string(size_);
  if (phase_ != FormationPhase::kRegister) return "connections are missing on " + of;
  const std::string& unproved = acceptor_.unproved();
  return "no message from " + of +
         (unproved.empty() ? "" : "; a process on " + unproved + " connected with a different key");
}

}  // namespace

std::vector<SecureChannel> form_job(Listener& listener, const FormationOptions& options,
                                    const StopSignal& stop, AllConnected all_connected,
                                    FailedStart* failed) {
  return Formation(listener, options, std::move(all_connected), failed).run(options.timeout, stop);
}

}  // namespace hvdtune
