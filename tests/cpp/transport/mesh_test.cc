#include "transport/mesh.h"

#include <chrono>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "check.h"
#include "transport/blocking_socket.h"
#include "transport/exchange.h"
#include "transport/rendezvous.h"
#include "transport/soon.h"
#include "transport/store_stream.h"

using namespace hvdtune;
using hvdtune::testing::soon;

namespace {

constexpr Key kMeshKey = {9, 9, 9};

// A rendezvous server in a thread of its own. As in a job, it tells ranks that come after the
// start has failed why: which of them comes first is left to the machine.
class Server {
 public:
  explicit Server(int size, std::chrono::nanoseconds timeout = std::chrono::seconds(50),
                  uint32_t generation = 0)
      : listener_("127.0.0.1"), channels_(std::async(std::launch::async, [=, this] {
          failed_.report = [this](const Error& error) { failure_.set_value(error); };
          return form_job(
              listener_, {kMeshKey, size, generation, timeout}, stop_,
              [this](std::vector<RankInfo> members) { members_ = std::move(members); }, &failed_);
        })) {}
  ~Server() { stop(); }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  MeshOptions options(int rank, int size, std::string host) const {
    MeshOptions options;
    options.rank = rank;
    options.size = size;
    options.host = std::move(host);
    options.store_port = listener_.port();
    options.key = kMeshKey;
    options.start_timeout = std::chrono::seconds(50);
    options.arena_slot_bytes = 4096;
    return options;
  }

  void stop() { stop_.raise(); }
  std::vector<SecureChannel> channels() { return channels_.get(); }
  // Why the start failed.
  Error failure() {
    Error error = failure_.get_future().get();
    stop();
    CHECK_THROWS(ErrorCode::kShutdown, channels());
    return error;
  }
  const std::vector<RankInfo>& members() const { return members_; }

 private:
  Listener listener_;
  StopSignal stop_;
  FailedStart failed_;
  std::promise<Error> failure_;
  std::vector<RankInfo> members_;
  std::future<std::vector<SecureChannel>> channels_;
};

std::future<Mesh> start(const MeshOptions& options, const StopSignal& stop) {
  return std::async(std::launch::async, [options, &stop] { return connect_mesh(options, stop); });
}

template <typename T>
std::string failure_of(std::future<T>& future, ErrorCode code = ErrorCode::kRendezvous) {
  try {
    future.get();
  } catch (const Error& error) {
    if (error.code() != code) std::cerr << error.what() << std::endl;
    CHECK(error.code() == code);
    return error.what();
  }
  CHECK(false);
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  if (text.find(part) == std::string::npos) std::cerr << "text: " << text << std::endl;
  return text.find(part) != std::string::npos;
}

// Every rank sends its number to every other at once.
void greet_all(Mesh& mesh, const StopSignal& stop) {
  const auto size = static_cast<size_t>(mesh.topology.size);
  const int mine = mesh.topology.rank;
  std::vector<int> theirs(size, -1);
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < size; ++i) {
    if (mesh.links[i] == nullptr) continue;
    CHECK_EQ(mesh.links[i]->peer(), static_cast<int>(i));
    transfers.push_back({mesh.links[i].get(), &mine, sizeof mine, &theirs[i], sizeof(int)});
  }
  CHECK_EQ(transfers.size(), size - 1);
  exchange(transfers, soon(), stop, 0);
  for (size_t i = 0; i < size; ++i) {
    if (static_cast<int>(i) != mine) CHECK_EQ(theirs[i], static_cast<int>(i));
  }
}

void pass_byte(SecureChannel& from, SecureChannel& to, const StopSignal& stop) {
  CHECK(from.session == to.session);
  const char sent = 'x';
  char received = 0;
  from.socket.send_all(&sent, 1, soon(), stop);
  testing::recv_all(to.socket, &received, 1, soon(), stop);
  CHECK_EQ(received, sent);
}

std::vector<Mesh> form(int size, const std::function<void(MeshOptions&)>& change,
                       std::vector<SecureChannel>* jobs = nullptr) {
  Server server(size);
  const StopSignal stop;
  std::vector<std::future<Mesh>> starting;
  for (int rank = 0; rank < size; ++rank) {
    MeshOptions options = server.options(rank, size, rank < (size + 1) / 2 ? "a" : "b");
    change(options);
    starting.push_back(start(options, stop));
  }
  std::vector<Mesh> meshes;
  for (std::future<Mesh>& one : starting) meshes.push_back(one.get());
  std::vector<SecureChannel> channels = server.channels();
  CHECK_EQ(server.members().size(), static_cast<size_t>(size));
  if (jobs != nullptr) *jobs = std::move(channels);
  return meshes;
}

void check_traffic(std::vector<Mesh>& meshes) {
  const StopSignal stop;
  std::vector<std::jthread> threads;
  for (Mesh& mesh : meshes) {
    threads.emplace_back([&] {
      greet_all(mesh, stop);
      if (!mesh.arena) return;
      for (int peer = 0; peer < mesh.arena->local_size(); ++peer) {
        if (peer != mesh.arena->local_rank()) mesh.arena->post(peer);
      }
      for (int peer = 0; peer < mesh.arena->local_size(); ++peer) {
        if (peer != mesh.arena->local_rank()) mesh.arena->await(peer, {soon(), stop, 0});
      }
    });
  }
}

void check_channels(std::vector<Mesh>& meshes, std::vector<SecureChannel>& jobs) {
  const StopSignal stop;
  for (size_t i = 0; i < meshes.size(); ++i) {
    CHECK_EQ(jobs[i].peer, static_cast<int>(i));
    pass_byte(jobs[i], *meshes[i].job, stop);
    pass_byte(*meshes[i].job, jobs[i], stop);
    for (SecureChannel& child : meshes[i].children) {
      SecureChannel& parent = *meshes[static_cast<size_t>(child.peer)].parent;
      CHECK_EQ(parent.peer, static_cast<int>(i));
      pass_byte(child, parent, stop);
    }
    if (i == 0) continue;
    CHECK(meshes[i].parent.has_value());
    pass_byte(*meshes[i].health[0], *meshes[0].health[i], stop);
  }
}

}  // namespace

TEST(one_to_eight_ranks_on_two_hosts_reach_each_other) {
  for (const int size : {1, 2, 3, 4, 8}) {
    std::vector<SecureChannel> jobs;
    std::vector<Mesh> meshes = form(size, [](MeshOptions&) {}, &jobs);
    check_traffic(meshes);
    check_channels(meshes, jobs);
    const Topology& last = meshes.back().topology;
    CHECK_EQ(last.hosts.size(), size == 1 ? 1U : 2U);
    CHECK_EQ(meshes[0].arena != nullptr, size > 2);
  }
}

TEST(without_shared_memory_all_links_are_sockets) {
  std::vector<Mesh> meshes = form(3, [](MeshOptions& options) { options.shared_memory = false; });
  for (const Mesh& mesh : meshes) CHECK(mesh.arena == nullptr);
  check_traffic(meshes);
}

TEST(one_rank_without_shared_memory_is_reached_by_sockets) {
  std::vector<Mesh> meshes = form(3, [](MeshOptions& options) {
    options.host = "a";
    options.shared_memory = options.rank != 1;
  });
  for (const Mesh& mesh : meshes) CHECK(mesh.arena == nullptr);
  check_traffic(meshes);
}

TEST(loopback_aliases_are_hosts_of_their_own) {
  std::vector<Mesh> meshes = form(4, [](MeshOptions& options) {
    options.host = options.rank % 2 == 0 ? "127.0.0.2" : "127.0.0.3";
  });
  check_traffic(meshes);
  const Topology& topology = meshes[3].topology;
  CHECK(topology.hosts == (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  CHECK_EQ(topology.local_rank, 1);
  CHECK_EQ(topology.cross_rank, 1);
  CHECK_EQ(topology.cross_size, 2);
}

TEST(links_between_hosts_have_as_many_streams_as_both_ends_want) {
  std::vector<Mesh> meshes = form(4, [](MeshOptions& options) {
    options.host = options.rank < 2 ? "a" : "b";
    options.channels = options.rank == 3 ? 2 : 5;
  });
  check_traffic(meshes);
}

TEST(ranks_listen_on_the_address_that_was_chosen) {
  Server server(2);
  const StopSignal stop;
  std::vector<std::future<Mesh>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    MeshOptions options = server.options(rank, 2, "127.0.0.2");
    options.bind_address = "127.0.0." + std::to_string(7 + rank);
    ranks.push_back(start(options, stop));
  }
  for (std::future<Mesh>& rank : ranks) rank.get();
  server.channels();
  CHECK_EQ(server.members()[0].address, "127.0.0.7");
  CHECK_EQ(server.members()[1].address, "127.0.0.8");
}

TEST(no_rank_listens_on_every_interface) {
  Server server(1);
  const StopSignal stop;
  for (const char* everywhere : {"0.0.0.0", "::"}) {
    MeshOptions options = server.options(0, 1, "a");
    options.bind_address = everywhere;
    CHECK_THROWS(ErrorCode::kUsage, connect_mesh(options, stop));
  }
  server.stop();
  CHECK_THROWS(ErrorCode::kShutdown, server.channels());
}

TEST(local_rank_zero_decides_the_size_of_the_arena) {
  std::vector<Mesh> meshes = form(2, [](MeshOptions& options) {
    options.host = "a";
    options.arena_slot_bytes = options.rank == 0 ? 8192 : 4096;
  });
  for (const Mesh& mesh : meshes) CHECK_EQ(mesh.arena->slot_bytes(), 8192U);
}

namespace {

HostCosts costs_of(int number) {
  HostCosts costs;
  costs.copy_ns = number;
  return costs;
}

}  // namespace

TEST(the_ranks_of_a_host_have_the_costs_of_its_local_rank_zero) {
  const std::vector<Mesh> meshes =
      form(4, [](MeshOptions& options) { options.costs = costs_of(100 + options.rank); });
  for (const Mesh& mesh : meshes) {
    CHECK(mesh.costs == costs_of(100 + (mesh.topology.rank < 2 ? 0 : 2)));
    CHECK(!mesh.costs_are_new);
  }
}

TEST(local_rank_zero_alone_measures_costs_that_it_does_not_know) {
  const std::vector<Mesh> meshes = form(4, [](MeshOptions& options) {
    if (options.rank == 2) options.costs = costs_of(7);
    options.measure_costs = [rank = options.rank] { return costs_of(100 + rank); };
  });
  for (const Mesh& mesh : meshes) {
    CHECK(mesh.costs == costs_of(mesh.topology.rank < 2 ? 100 : 7));
    CHECK_EQ(mesh.costs_are_new, mesh.topology.rank == 0);
  }
}

TEST(a_single_rank_needs_no_server) {
  const StopSignal stop;
  const Mesh mesh = connect_mesh({}, stop);
  CHECK_EQ(mesh.topology.local_size, 1);
  CHECK(!mesh.job);
}

TEST(several_ranks_need_a_server) {
  const StopSignal stop;
  MeshOptions options;
  options.size = 2;
  CHECK_THROWS(ErrorCode::kUsage, connect_mesh(options, stop));
  options.rank = 2;
  CHECK_THROWS(ErrorCode::kUsage, connect_mesh(options, stop));
}

TEST(ranks_are_counted_per_host_and_across_hosts) {
  const std::vector<std::string> hosts = {"b", "a", "b", "c", "a", "b"};
  const Topology topology = make_topology(4, hosts);
  CHECK(topology.hosts == (std::vector<std::vector<int>>{{0, 2, 5}, {1, 4}, {3}}));
  CHECK_EQ(topology.local_rank, 1);
  CHECK_EQ(topology.local_size, 2);
  CHECK_EQ(topology.cross_rank, 1);
  CHECK_EQ(topology.cross_size, 2);
  CHECK_EQ(make_topology(5, hosts).cross_size, 1);
  CHECK_EQ(make_topology(3, hosts).cross_rank, 2);
}

TEST(a_rank_that_leaves_ends_start_up_for_all_and_is_named) {
  Server server(3);
  const StopSignal stop;
  StopSignal leave;
  std::future<Mesh> first = start(server.options(0, 3, "a"), stop);
  std::future<Mesh> leaver = start(server.options(1, 3, "host-b"), leave);
  // It may leave before it registered: then nobody knows its host.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  leave.raise();
  failure_of(leaver, ErrorCode::kShutdown);
  CHECK(contains(failure_of(first), "rank 1"));
  const Error failure = server.failure();
  CHECK_EQ(failure.rank(), 1);
  CHECK(contains(failure.what(), "ended during start-up"));
}

// The server looks at both in one round nearly always; it must not look at the first one again.
TEST(a_rank_that_leaves_while_another_registers_ends_start_up) {
  for (int round = 0; round < 50; ++round) {
    Listener listener("127.0.0.1");
    StopSignal stop;
    std::promise<std::string> told;
    FailedStart failed;
    failed.report = [&](const Error& error) { told.set_value(error.what()); };
    auto channels = std::async(std::launch::async, [&] {
      return form_job(listener, {kMeshKey, 3, 0, std::chrono::seconds(50)}, stop, {}, &failed);
    });
    const auto reach = [&](int rank) {
      return dial("127.0.0.1", listener.port(), {Purpose::kStore, rank, kStoreRank, 0}, kMeshKey,
                  soon(), stop);
    };
    StoreStream registers(reach(0), false);
    registers.queue(StoreMessage::registration(3, {"a", "127.0.0.1", 1, 1}));
    {
      const SecureChannel leaves = reach(1);
      CHECK(registers.flush());
    }
    CHECK(contains(told.get_future().get(), "rank 1 ended during start-up"));
    stop.raise();
    CHECK_THROWS(ErrorCode::kShutdown, channels.get());
  }
}

TEST(a_rank_that_fails_tells_all_why) {
  Server server(2);
  const StopSignal stop;
  MeshOptions hasty = server.options(0, 2, "a");
  // Enough to register: a rank that nobody has heard of is not missed.
  hasty.start_timeout = std::chrono::seconds(1);
  std::future<Mesh> first = start(hasty, stop);
  CHECK(contains(failure_of(first), "rank 0 was waiting for the other ranks"));
  const Error failure = server.failure();
  CHECK_EQ(failure.rank(), 0);
  CHECK(contains(failure.what(), "start-up timed out"));
}

TEST(the_deadline_lists_the_missing_ranks) {
  Server server(4, std::chrono::milliseconds(500));
  const StopSignal stop;
  std::future<Mesh> there = start(server.options(2, 4, "a"), stop);
  const std::string text = failure_of(there);
  CHECK(contains(text, "no message from rank 0, rank 1, rank 3 of 4"));
  CHECK(server.failure().code() == ErrorCode::kRendezvous);
}

TEST(who_waits_is_told_of_one_with_another_key) {
  Server server(2, std::chrono::milliseconds(300));
  const StopSignal stop;
  const MeshOptions options = server.options(0, 2, "a");
  CHECK_THROWS(ErrorCode::kRendezvous,
               dial("127.0.0.1", options.store_port, {Purpose::kStore, 1, kStoreRank, 0}, {4},
                    soon(), stop));
  std::future<Mesh> there = start(options, stop);
  CHECK(contains(
      failure_of(there),
      "no message from rank 1 of 2; a process on 127.0.0.1 connected with a different key"));
  CHECK(server.failure().code() == ErrorCode::kRendezvous);
}

TEST(one_with_another_key_says_so_though_nobody_listens_any_more) {
  std::optional<Listener> listener("127.0.0.1");
  const StopSignal stop;
  MeshOptions options;
  options.size = 2;
  options.rank = 1;
  options.generation = 1;
  options.store_port = listener->port();
  options.start_timeout = std::chrono::seconds(1);
  std::future<Mesh> refused = start(options, stop);
  for (int i = 0; i < 5; ++i) {
    wait_ready(listener->fd(), POLLIN, soon(), stop, "accept");
    Socket socket = std::move(listener->try_accept().value());
    Hello hello{};
    Digest proof{};
    testing::recv_all(socket, hello.data(), hello.size(), soon(), stop);
    socket.send_all(hello.data(), sizeof(Nonce), soon(), stop);
    testing::recv_all(socket, proof.data(), proof.size(), soon(), stop);
  }
  listener.reset();
  CHECK(contains(failure_of(refused), "has a different key than this process"));
}

TEST(two_of_the_same_rank_are_both_told_while_another_is_missing) {
  Server server(2);
  const StopSignal stop;
  std::vector<std::future<Mesh>> twins;
  for (int i = 0; i < 2; ++i) twins.push_back(start(server.options(1, 2, "a"), stop));
  for (std::future<Mesh>& twin : twins) {
    CHECK(contains(failure_of(twin), "two processes have rank 1: pid "));
  }
  CHECK(server.failure().code() == ErrorCode::kRendezvous);
}

TEST(no_rank_is_let_go_before_the_caller_knows_that_all_have_connected) {
  Listener listener("127.0.0.1");
  const StopSignal stop;
  std::promise<void> called;
  std::promise<void> seen;
  auto channels = std::async(std::launch::async, [&] {
    return form_job(listener, {kMeshKey, 1, 0, std::chrono::seconds(50)}, stop,
                    [&](const std::vector<RankInfo>&) {
                      called.set_value();
                      seen.get_future().wait();
                    });
  });
  MeshOptions options;
  options.size = 1;
  options.store_port = listener.port();
  options.key = kMeshKey;
  options.start_timeout = std::chrono::seconds(50);
  std::future<Mesh> mesh = start(options, stop);
  called.get_future().wait();
  CHECK(mesh.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  seen.set_value();
  mesh.get();
  CHECK_EQ(channels.get().size(), 1U);
}

TEST(a_rank_of_another_job_size_is_refused_and_the_others_are_told) {
  for (const bool others_are_late : {false, true}) {
    Server server(2);
    const StopSignal stop;
    std::future<Mesh> right;
    if (!others_are_late) right = start(server.options(0, 2, "a"), stop);
    std::future<Mesh> wrong = start(server.options(1, 3, "a"), stop);
    const std::string said = failure_of(wrong);
    if (others_are_late) right = start(server.options(0, 2, "a"), stop);
    CHECK(contains(said, "rank 1 (pid "));
    CHECK(contains(said, "expects a job of 3 ranks, rank 0 one of 2"));
    CHECK_EQ(failure_of(right), said);
    CHECK(server.failure().code() == ErrorCode::kRendezvous);
  }
}

TEST(a_stopped_server_lets_no_rank_wait) {
  Server server(2);
  const StopSignal stop;
  std::future<Mesh> waiting = start(server.options(0, 2, "a"), stop);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  server.stop();
  failure_of(waiting);
  CHECK_THROWS(ErrorCode::kShutdown, server.channels());
}

TEST(a_stranger_neither_joins_nor_disturbs) {
  Server server(1);
  const StopSignal stop;
  MeshOptions stranger = server.options(0, 1, "a");
  stranger.key = Key{1};
  CHECK_THROWS(ErrorCode::kRendezvous, connect_mesh(stranger, stop));
  MeshOptions stale = server.options(0, 1, "a");
  stale.generation = 1;
  stale.start_timeout = std::chrono::milliseconds(200);  // it would come again until then
  try {
    connect_mesh(stale, stop);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(contains(error.what(), "rendezvous server"));
  }
  connect_mesh(server.options(0, 1, "a"), stop);
  CHECK_EQ(server.channels().size(), 1U);
}

TEST(a_server_that_is_not_there_is_named) {
  MeshOptions options;
  options.size = 2;
  options.store_port = [] { return Listener("127.0.0.1").port(); }();
  const StopSignal stop;
  try {
    connect_mesh(options, stop);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRendezvous);
    CHECK(contains(error.what(), "the rendezvous server"));
  }
}

TEST(the_same_process_connects_again) {
  for (int round = 0; round < 5; ++round) {
    std::vector<Mesh> meshes = form(2, [](MeshOptions& options) { options.host = "a"; });
    check_traffic(meshes);
  }
}
