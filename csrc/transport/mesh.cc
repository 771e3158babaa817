#include "transport/mesh.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/plural.h"
#include "base/status.h"
#include "transport/backoff.h"
#include "transport/bytes.h"
#include "transport/control_tree.h"
#include "transport/endpoint.h"
#include "transport/rendezvous.h"
#include "transport/shm/link.h"
#include "transport/store_stream.h"
#include "transport/tcp/link.h"

namespace hvdtune {
namespace {

// How long a rank that lost a peer waits for the server, which knows more, to say why.
constexpr auto kReasonTime = std::chrono::seconds(2);
// How often a rank that is back for another job looks whether the server listens again.
constexpr int kStoreRetryMs = 20;

// offer: segment offer of the pair's rings, segment offer of the arena (fd -1: none), HMAC under
// the data channel's session key.
// segment offer: pid i32, fd i32, bytes u64, cookie [16]. Little endian.
constexpr size_t kSegmentOfferBytes = 32;
constexpr size_t kOfferBytes = 2 * kSegmentOfferBytes + sizeof(Digest);
using OfferMessage = std::array<uint8_t, kOfferBytes>;

void put(const SegmentOffer& offer, uint8_t* to) {
  store_le(offer.pid, to);
  store_le(offer.fd, to + 4);
  store_le(offer.bytes, to + 8);
  std::ranges::copy(offer.cookie, to + 16);
}

SegmentOffer get(const uint8_t* from) {
  SegmentOffer offer{
      load_le<int32_t>(from), load_le<int32_t>(from + 4), load_le<uint64_t>(from + 8), {}};
  std::copy_n(from + 16, offer.cookie.size(), offer.cookie.begin());
  return offer;
}

Digest offer_mac(const Key& session, const OfferMessage& message) {
  return hmac_sha256(session, Bytes(message).first(2 * kSegmentOfferBytes));
}

std::string address_of(const MeshOptions& options) {
  if (!options.bind_address.empty()) return options.bind_address;
  const bool is_loopback = options.host.starts_with("127.") &&
                           options.host.find_first_not_of("0123456789.") == std::string::npos;
  return is_loopback ? options.host : "127.0.0.1";
}

class MeshBuilder {
 public:
  MeshBuilder(const MeshOptions& options, const StopSignal& stop);

  Mesh run();
  // Throws what the user is to read, after telling the server or hearing from it.
  [[noreturn]] void fail(const Error& error);

 private:
  struct Connection {
    Purpose purpose;
    int rank;
    int stream = 0;
    bool operator==(const Connection&) const = default;
  };

  bool names_a_rank() const { return waiting_for_.find("rank ") != std::string::npos; }
  void wait(std::vector<pollfd> polls, Deadline until);
  std::optional<StoreMessage> receive_from_store();
  StoreMessage receive_from_store_until(StoreMessageType type);
  void read_table(const StoreMessage& message);
  void connect_peers();
  std::vector<Connection> to_dial() const;
  std::vector<Connection> to_accept() const;
  void add_channel(Purpose purpose, int stream, SecureChannel channel);
  bool shares_memory(int rank) const;
  int streams_to(int rank) const;
  void share_memory();
  void offer_memory(int rank);
  void open_offered_memory(int rank);
  void make_links();

  const MeshOptions& options_;
  const StopSignal& stop_;
  Deadline deadline_;
  Listener listener_;
  StoreStream store_;
  std::vector<RankInfo> members_;
  int parent_ = -1;
  std::map<std::pair<int, int>, SecureChannel> data_;  // by rank and stream
  std::map<int, SecureChannel> control_;
  std::map<int, Segment> segments_;
  std::string waiting_for_;
  Mesh mesh_;
};

SecureChannel dial_store(const MeshOptions& options, Deadline deadline, const StopSignal& stop) {
  const ConnectionId connection_id{Purpose::kStore, options.rank, kStoreRank, options.generation};
  // The peer that refused the key may have ended at the timeout; its refusal explains more.
  std::optional<KeyRefused> refused;
  for (;;) {
    try {
      return dial(through_interface_of(address_of(options), options.store_address),
                  options.store_port, connection_id, options.key, deadline, stop);
    } catch (const Error& error) {
      if (const auto* unproved = dynamic_cast<const KeyRefused*>(&error)) refused = *unproved;
      // The server listens again when rank 0 has left the job before, perhaps later than this one.
      const bool may_come = options.generation > 0 && error.code() == ErrorCode::kRendezvous;
      if (!may_come || deadline.passed()) {
        if (refused && error.code() != ErrorCode::kShutdown) throw *refused;
        throw;
      }
    }
    pollfd stopped{stop.fd(), POLLIN, 0};
    poll(&stopped, 1, deadline.poll_ms(kStoreRetryMs));
    if (stop.raised()) throw Error(ErrorCode::kShutdown, "stopped during start-up");
  }
}

MeshBuilder::MeshBuilder(const MeshOptions& options, const StopSignal& stop)
    : options_(options),
      stop_(stop),
      deadline_(Deadline::in(options.start_timeout)),
      listener_(address_of(options)),
      store_(dial_store(options, deadline_, stop), false) {
  mesh_.costs = options.costs.value_or(HostCosts{});
  mesh_.only_costs_decide = options.only_costs_decide;
}

Mesh MeshBuilder::run() {
  RankInfo self;
  self.host = options_.host;
  self.address = without_interface(address_of(options_));
  self.port = listener_.port();
  self.pid = getpid();
  self.shared_memory = options_.shared_memory;
  self.channels = options_.channels;
  FAILPOINT("mesh/register");
  store_.queue(StoreMessage::registration(options_.size, self));
  waiting_for_ = "the other ranks to start";
  read_table(receive_from_store_until(StoreMessageType::kTable));
  FAILPOINT("mesh/table");
  connect_peers();
  FAILPOINT("mesh/connected");
  share_memory();
  FAILPOINT("mesh/shared");
  store_.queue(StoreMessage::connected());
  waiting_for_ = "the other ranks to connect";
  receive_from_store_until(StoreMessageType::kGo);
  FAILPOINT("mesh/go");
  make_links();
  if (parent_ >= 0) mesh_.parent = std::move(control_.at(parent_));
  for (const std::vector<int>& branch : mesh_.branches) {
    mesh_.children.push_back(std::move(control_.at(branch.front())));
  }
  mesh_.job = store_.take();
  return std::move(mesh_);
}

void MeshBuilder::fail(const Error& error) {
  const bool told = error.code() == ErrorCode::kRendezvous && error.rank() < 0;
  if (told || error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kShutdown) {
    throw error;
  }
  // Memory that cannot be opened may be that of a rank which has just given up.
  const bool peer_failed = error.code() == ErrorCode::kRankLost ||
                           error.code() == ErrorCode::kRendezvous ||
                           (error.code() == ErrorCode::kInternal && error.rank() >= 0);
  // The server knows which rank is missing where this one does not.
  if (peer_failed || (error.code() == ErrorCode::kTimeout && !names_a_rank())) {
    deadline_ = Deadline::in(kReasonTime);
    try {
      while (!receive_from_store()) wait({}, Deadline::never());
    } catch (const Error& reason) {
      if (reason.code() != ErrorCode::kTimeout) throw;
    }
  }
  try {
    store_.queue(StoreMessage::failed(error.what()));
    store_.flush();
  } catch (const Error&) {
    // The server has ended, too, so this is not reported.
  }
  throw Error(ErrorCode::kRendezvous, error.what(), error.rank());
}

// Sleeps until one of polls or the server has something, or `until`.
void MeshBuilder::wait(std::vector<pollfd> polls, Deadline until) {
  polls.push_back({stop_.fd(), POLLIN, 0});
  polls.push_back({store_.fd(), store_.events(), 0});
  const Deadline first = Deadline::at(std::min(until.at_ns(), deadline_.at_ns()));
  if (poll(polls.data(), polls.size(), first.poll_ms()) < 0 && errno != EINTR) {
    throw system_failure("poll", errno);
  }
  if (stop_.raised()) throw Error(ErrorCode::kShutdown, "stopped during start-up");
  if (deadline_.passed()) {
    throw Error(ErrorCode::kTimeout, "start-up timed out: rank " + std::to_string(options_.rank) +
                                         " was waiting for " + waiting_for_);
  }
}

// Throws Error(kRendezvous) without a rank when the server reports that the job cannot form.
std::optional<StoreMessage> MeshBuilder::receive_from_store() {
  try {
    std::optional<StoreMessage> message = store_.try_receive();
    if (message && message->type == StoreMessageType::kFailed) {
      // The server does not have the wait graph.
      throw Error(
          ErrorCode::kRendezvous,
          message->as_text() + (names_a_rank() ? "; this rank waited for " + waiting_for_ : ""));
    }
    if (!message) store_.flush();
    return message;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kRankLost) throw;
    throw Error(ErrorCode::kRendezvous, "the rendezvous server ended during start-up");
  }
}

StoreMessage MeshBuilder::receive_from_store_until(StoreMessageType type) {
  for (;;) {
    std::optional<StoreMessage> message = receive_from_store();
    if (message && message->type == type) return std::move(*message);
    if (message)
      throw Error(ErrorCode::kInternal, "the rendezvous server sent an unexpected message");
    wait({}, Deadline::never());
  }
}

void MeshBuilder::read_table(const StoreMessage& message) {
  members_ = message.as_table();
  if (members_.size() != static_cast<size_t>(options_.size)) {
    throw Error(ErrorCode::kInternal, "the rendezvous server sent a table of the wrong size");
  }
  std::vector<std::string> hosts;
  for (const RankInfo& member : members_) hosts.push_back(member.host);
  mesh_.topology = make_topology(options_.rank, hosts);
  mesh_.links.resize(members_.size());
  const std::vector<int> parents =
      control_parents(mesh_.topology.hosts, std::max(1, options_.control_fanout));
  parent_ = parents[static_cast<size_t>(options_.rank)];
  mesh_.branches = control_branches(parents, options_.rank);
  mesh_.health.resize(members_.size());
}

// The higher rank of a pair dials.
std::vector<MeshBuilder::Connection> MeshBuilder::to_dial() const {
  std::vector<Connection> list;
  for (int rank = 0; rank < options_.rank; ++rank) {
    for (int stream = 0; stream < streams_to(rank); ++stream) {
      list.push_back({Purpose::kData, rank, stream});
    }
  }
  if (options_.rank > 0) {
    list.push_back({Purpose::kControl, parent_});
    list.push_back({Purpose::kHealth, 0});
  }
  return list;
}

std::vector<MeshBuilder::Connection> MeshBuilder::to_accept() const {
  std::vector<Connection> list;
  for (int rank = options_.rank + 1; rank < options_.size; ++rank) {
    for (int stream = 0; stream < streams_to(rank); ++stream) {
      list.push_back({Purpose::kData, rank, stream});
    }
    if (options_.rank > 0) continue;
    list.push_back({Purpose::kHealth, rank});
  }
  for (const std::vector<int>& branch : mesh_.branches) {
    list.push_back({Purpose::kControl, branch.front()});
  }
  return list;
}

void MeshBuilder::add_channel(Purpose purpose, int stream, SecureChannel channel) {
  channel.socket.expect_answers(purpose == Purpose::kData ? Traffic::kData : Traffic::kMessages,
                                options_.silence_timeout);
  const auto peer = static_cast<size_t>(channel.peer);
  if (purpose == Purpose::kData) data_.insert_or_assign({channel.peer, stream}, std::move(channel));
  if (purpose == Purpose::kControl) control_.insert_or_assign(channel.peer, std::move(channel));
  if (purpose == Purpose::kHealth) mesh_.health[peer] = std::move(channel);
}

void MeshBuilder::connect_peers() {
  Acceptor acceptor(listener_, options_.key, options_.rank, options_.generation);
  std::vector<Connection> awaited = to_accept();
  std::vector<Dialer> dialers;
  for (const auto& [purpose, rank, stream] : to_dial()) {
    const RankInfo& peer = members_[static_cast<size_t>(rank)];
    dialers.emplace_back(through_interface_of(address_of(options_), peer.address), peer.port,
                         ConnectionId{purpose, options_.rank, rank, options_.generation, stream},
                         options_.key);
  }
  for (;;) {
    std::erase_if(dialers, [this](Dialer& dialer) {
      if (!dialer.advance()) return false;
      add_channel(dialer.connection_id().purpose, dialer.connection_id().stream, dialer.take());
      return true;
    });
    for (Accepted& accepted : acceptor.advance()) {
      // One that is not awaited is a second of its kind, and is dropped.
      const Connection connection{accepted.purpose, accepted.channel.peer, accepted.stream};
      if (std::erase(awaited, connection) > 0) {
        add_channel(accepted.purpose, accepted.stream, std::move(accepted.channel));
      }
    }
    if (dialers.empty() && awaited.empty()) return;
    const int first = dialers.empty() ? awaited.front().rank : dialers.front().connection_id().to;
    waiting_for_ = "rank " + std::to_string(first) + " to connect";
    if (receive_from_store())
      throw Error(ErrorCode::kInternal, "the rendezvous server sent an unexpected message");
    std::vector<pollfd> polls;
    acceptor.add_to(polls);
    for (const Dialer& dialer : dialers) polls.push_back(dialer.poll_entry());
    wait(std::move(polls), acceptor.next_expiry());
  }
}

bool MeshBuilder::shares_memory(int rank) const {
  const RankInfo& self = members_[static_cast<size_t>(options_.rank)];
  const RankInfo& other = members_[static_cast<size_t>(rank)];
  return rank != options_.rank && self.host == other.host && self.shared_memory &&
         other.shared_memory;
}

int MeshBuilder::streams_to(int rank) const {
  const RankInfo& self = members_[static_cast<size_t>(options_.rank)];
  const RankInfo& other = members_[static_cast<size_t>(rank)];
  return self.host == other.host ? 1 : std::max(1, std::min(self.channels, other.channels));
}

// The lower rank of a pair makes the memory, so the offers of local rank 0 reach all local ranks.
void MeshBuilder::share_memory() {
  const Topology& topology = mesh_.topology;
  // Over the whole job, so that the ranks of every host choose the same algorithms.
  const bool all = std::ranges::all_of(members_, &RankInfo::shared_memory);
  for (const std::vector<int>& ranks : topology.hosts) {
    if (ranks.size() < 2 || !std::ranges::count(ranks, options_.rank)) continue;
    if (all && topology.local_rank == 0) {
      if (!options_.costs && options_.measure_costs) {
        mesh_.costs = options_.measure_costs();
        mesh_.costs_are_new = true;
      }
      mesh_.arena =
          std::make_unique<Arena>(Arena::create(options_.arena_slot_bytes, ranks, mesh_.costs));
    }
  }
  for (int rank = options_.rank + 1; rank < options_.size; ++rank) {
    if (shares_memory(rank)) offer_memory(rank);
  }
  for (int rank = 0; rank < options_.rank; ++rank) {
    if (shares_memory(rank)) open_offered_memory(rank);
  }
}

void MeshBuilder::offer_memory(int rank) {
  const Segment& segment = segments_.emplace(rank, Segment::create(shm_link_bytes())).first->second;
  OfferMessage message{};
  put(segment.offer(), message.data());
  put(mesh_.arena ? mesh_.arena->offer() : SegmentOffer{}, message.data() + kSegmentOfferBytes);
  SecureChannel& channel = data_.at({rank, 0});
  std::ranges::copy(offer_mac(channel.session, message), message.begin() + 2 * kSegmentOfferBytes);
  FAILPOINT_ON("mesh/offer", channel.socket.fd());
  // A fresh connection takes these few bytes at once.
  if (channel.socket.try_send(message.data(), message.size()) != message.size()) {
    throw Error(ErrorCode::kInternal, "a new connection accepted no data", rank);
  }
}

void MeshBuilder::open_offered_memory(int rank) {
  SecureChannel& channel = data_.at({rank, 0});
  OfferMessage message{};
  size_t received = 0;
  FAILPOINT_ON("mesh/open_offered_memory", channel.socket.fd());
  waiting_for_ = "the shared memory of rank " + std::to_string(rank);
  while (received < message.size()) {
    const size_t got =
        channel.socket.try_recv(message.data() + received, message.size() - received);
    received += got;
    if (got > 0) continue;
    if (receive_from_store())
      throw Error(ErrorCode::kInternal, "the rendezvous server sent an unexpected message");
    wait({{channel.socket.fd(), POLLIN, 0}}, Deadline::never());
  }
  if (!digests_equal(Bytes(message).last(sizeof(Digest)), offer_mac(channel.session, message))) {
    throw Error(ErrorCode::kInternal,
                "rank " + std::to_string(rank) + " offered shared memory with a wrong signature",
                rank);
  }
  FAILPOINT_ON("mesh/open_offer", channel.socket.fd());
  segments_.emplace(rank, Segment::open(get(message.data()), rank));
  const SegmentOffer arena = get(message.data() + kSegmentOfferBytes);
  if (arena.fd < 0) return;
  for (const std::vector<int>& ranks : mesh_.topology.hosts) {
    if (ranks.front() != rank) continue;
    mesh_.arena = std::make_unique<Arena>(Arena::open(arena, mesh_.topology.local_rank, ranks));
    mesh_.costs = mesh_.arena->costs();
  }
}

// By now every rank has opened the memory that it was offered.
void MeshBuilder::make_links() {
  if (mesh_.arena) {
    mesh_.arena->close_offer();
    mesh_.processors = mesh_.arena->processors();
  }
  std::map<int, std::vector<Socket>> sockets;
  for (auto& [place, channel] : data_) sockets[place.first].push_back(std::move(channel.socket));
  for (auto& [rank, streams] : sockets) {
    std::unique_ptr<Link>& link = mesh_.links[static_cast<size_t>(rank)];
    const auto segment = segments_.find(rank);
    if (segment != segments_.end()) {
      segment->second.close_fd();
      link = make_shm_link(std::move(segment->second), std::move(streams[0]), options_.rank < rank);
    } else if (streams.size() == 1) {
      link = make_tcp_link(std::move(streams[0]));
    } else {
      link = make_striped_link(std::move(streams));
    }
  }
}

}  // namespace

int spins_for(const Mesh& mesh) {
  return spins_for(mesh.topology.local_size, mesh.processors, mesh.costs);
}

Mesh connect_mesh(const MeshOptions& options, const StopSignal& stop) {
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    throw Error(ErrorCode::kUsage, "rank " + std::to_string(options.rank) +
                                       " does not exist in a job of " +
                                       counted(options.size, "rank"));
  }
  if (options.store_port == 0) {
    if (options.size > 1) {
      throw Error(ErrorCode::kUsage, "a job of several ranks needs a rendezvous server");
    }
    Mesh mesh;
    mesh.topology = make_topology(0, std::vector{options.host});
    mesh.links.resize(1);
    mesh.health.resize(1);
    return mesh;
  }
  std::optional<MeshBuilder> builder;
  try {
    return builder.emplace(options, stop).run();
  } catch (const Error& error) {
    if (builder) builder->fail(error);
    if (error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kShutdown) throw;
    throw Error(ErrorCode::kRendezvous, error.what());
  }
}

}  // namespace hvdtune
