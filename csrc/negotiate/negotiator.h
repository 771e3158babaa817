// The coordinator's book: who has announced what, and what is therefore ready.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

struct Ready {
  std::vector<Response> responses;  // in the order in which they became ready
  std::vector<uint32_t> evicted;
};

struct Stalled {
  std::string name;
  std::vector<int> missing_ranks;
  uint64_t since_ns = 0;
};

// Pure bookkeeping: no I/O, no clock. One thread.
class Negotiator {
 public:
  Negotiator(int size, size_t cache_capacity);

  // Throws Error(kInternal) when a rank announces what it cannot (twice, or an unknown number).
  void announce(int rank, const Announce& announce, uint64_t now_ns);

  bool has_pending() const { return !pending_.empty(); }
  bool has_ready() const { return !ready_.empty() || !conflicts_.empty(); }
  size_t ready_bytes() const { return ready_bytes_; }
  // Every rank has a thread blocked on a pending operation.
  bool everybody_waits() const;

  // Hands over all that is ready and updates the cache accordingly. `cycle` is the number of the
  // Cycle in which it will travel.
  Ready take_ready(bool cache_enabled, uint64_t cycle);

  // Tensors that some but not all ranks announced before `before_ns`.
  std::vector<Stalled> stalled(uint64_t before_ns) const;

 private:
  struct Pending {
    std::vector<uint32_t> ids;       // by rank; kNoCacheId: absent or announced in full
    std::map<int, Request> in_full;  // by rank
    int count = 0;
    uint64_t first_ns = 0;
    uint64_t last_ns = 0;
    int last_rank = -1;
  };
  struct Known {
    std::vector<Request> by_rank;
    std::list<uint32_t>::iterator use;
  };

  Pending& arrive(int rank, const std::string& name, uint64_t now_ns);
  void settle(const std::string& name, Pending& pending);
  void settle_conflicts();
  bool conflict(const std::vector<std::string>& names) const;
  const Request& request_of(const Pending& pending, int rank) const;
  static bool announced(const Pending& pending, int rank);
  Response respond(const std::string& name, const Pending& pending, bool cache_enabled,
                   Ready& batch);
  void admit(Response& response, std::vector<const Request*> by_rank, Ready& batch);
  void evict(uint32_t id, Ready& batch);
  void drop_retired();

  int size_;
  size_t capacity_;
  std::unordered_map<std::string, Pending> pending_;
  std::vector<std::string> ready_;
  std::vector<Response> conflicts_;  // carry an error each
  size_t ready_bytes_ = 0;
  std::vector<bool> waiting_;
  std::vector<uint64_t> cycles_seen_;

  uint32_t next_id_ = 0;
  std::unordered_map<uint32_t, Known> known_;
  std::unordered_map<std::string, uint32_t> id_by_name_;
  std::list<uint32_t> uses_;  // least recently used first
  // Evicted, but ranks that have not yet applied that cycle may still announce them.
  std::map<uint32_t, std::pair<uint64_t, std::vector<Request>>> retired_;
  uint64_t evicting_cycle_ = 0;
};

}  // namespace hvdtune
