// A rank's connections to all others, and its place among them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hmac.h"
#include "base/processors.h"
#include "base/stop.h"
#include "transport/handshake.h"
#include "transport/host_costs.h"
#include "transport/link.h"
#include "transport/shm/arena.h"
#include "transport/shm/pool.h"

namespace hvdtune {

struct MeshOptions {
  int rank = 0;
  int size = 1;
  std::string host = "localhost";
  // Numeric, of one interface. Empty: loopback, and there the host's own address if its name is a
  // 127.x.y.z.
  std::string bind_address;
  std::string store_address = "127.0.0.1";
  uint16_t store_port = 0;  // 0: no rendezvous; only for size 1
  Key key{};
  uint32_t generation = 0;
  std::chrono::nanoseconds start_timeout = std::chrono::seconds(30);
  // How long a connection may have no answer from the other machine before it is lost.
  std::chrono::nanoseconds silence_timeout = std::chrono::seconds(30);
  bool shared_memory = true;  // within a host
  int channels = 1;  // streams per link between hosts, at most 255; a pair takes the smaller number
  size_t arena_slot_bytes = size_t{8} << 20;  // local rank 0's counts
  int control_fanout = 16;                    // of the negotiation tree; the same on all ranks
  // Of this host, local rank 0's count. Without them it measures them, if it is told how.
  std::optional<HostCosts> costs;
  bool only_costs_decide = false;  // and not how long a way through the host's memory took lately
  std::function<HostCosts()> measure_costs = {};
};

struct Topology {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  // among the ranks with the same local_rank on other hosts
  int cross_size = 1;
  std::vector<std::vector<int>> hosts;  // ranks by host, each ascending; hosts by lowest rank
};

// `hosts` holds the host name of each rank; equal names are one host.
Topology make_topology(int rank, std::span<const std::string> hosts);

// Owns what it holds; the links and the arena belong to the cycle thread, each channel to whoever
// takes it.
struct Mesh {
  Topology topology;
  std::vector<std::unique_ptr<Link>> links;  // by rank, null for self
  // The negotiation tree: empty on rank 0, and one per branch, in their order.
  std::optional<SecureChannel> parent;
  std::vector<SecureChannel> children;
  std::vector<std::vector<int>> branches;  // the ranks below each child, the child first
  // On rank 0 by rank; on the others only [0] is set.
  std::vector<std::optional<SecureChannel>> health;
  std::optional<SecureChannel> job;  // to the rendezvous server; empty without one
  HostCosts costs;                   // the same on all ranks of a host that share an arena
  bool costs_are_new = false;        // this rank has measured them
  bool only_costs_decide = false;
  // On how many processors the ranks of this host may run; where no arena connects them, this one.
  int processors = usable_processors();
  std::unique_ptr<Arena> arena;  // null for a lone rank, or when any rank of the job has no
                                 // shared memory
  std::shared_ptr<Pool> pool = Pool::create();  // of this rank; outlives the mesh while in use
};

// Returns once every rank of the job is connected to every other. A process can do so again, also
// with other options. Throws Error(kUsage) for options that make no sense, Error(kRendezvous) with
// the cause, naming ranks, when any rank fails or the timeout passes, Error(kShutdown) once stop
// is raised.
Mesh connect_mesh(const MeshOptions& options, const StopSignal& stop);

// Rounds that a wait for a rank of this host spins.
int spins_for(const Mesh& mesh);

}  // namespace hvdtune
