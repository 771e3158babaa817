// The coordinator: answers each request once that all ranks have announced, and assigns the cache
// numbers under which it is remembered.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "negotiate/pending_requests.h"
#include "negotiate/process_sets.h"
#include "negotiate/validate.h"
#include "wire/message.h"

namespace hvdtune {

struct Ready {
  std::vector<Response> responses;  // in the order in which they became ready
  std::vector<uint32_t> evicted;
};

// Operations that are allowed while ranks of their set have joined.
enum class AfterJoin : uint8_t {
  kPossible,   // those that do not need the data of the joined ranks
  kAllreduce,  // as in Horovod: none with rows or a root
};

// Pure bookkeeping: no I/O, no clock. One thread.
class Negotiator {
 public:
  // `branches`: the ranks below each child of the root, as PendingRequests takes them. `sets` must
  // outlive the negotiator; the caller applies to it what each response says. After `cache_ids`
  // numbers nothing new is remembered: no number is used twice.
  Negotiator(const ProcessSets& sets, std::vector<std::vector<int>> branches, size_t cache_capacity,
             uint32_t cache_ids = kNoCacheId, AfterJoin after_join = AfterJoin::kPossible);

  // Throws what PendingRequests::add throws.
  void announce(size_t branch, const Announce& announce, uint64_t now_ns);

  bool has_pending() const { return pending_requests_.has_pending(); }
  bool has_ready() const { return !ready_.empty() || !conflicts_.empty(); }
  size_t ready_bytes() const { return ready_bytes_; }
  // Every rank has a thread blocked on a pending operation.
  bool everybody_waits() const { return pending_requests_.everybody_waits(); }
  uint32_t adopted_version() const { return pending_requests_.adopted_version(); }
  // To be told of what a response changed in the process sets.
  PendingRequests& pending_requests() { return pending_requests_; }

  // Hands over all that is ready and updates the cache accordingly. `cycle` is the number of the
  // Cycle in which it will travel.
  Ready take_ready(bool cache_enabled, uint64_t cycle);

 private:
  struct Known {
    Response response;
    std::list<uint32_t>::iterator use;
    uint64_t used_in = 0;  // the last cycle that answered by it
  };
  struct Retired {
    Response response;
    uint64_t evicting_cycle = 0;
  };

  const Response* response_of(uint32_t id) const;
  void note_join(const PendingRequest& entry);
  void settle_conflicts();
  bool conflict(uint32_t process_set, const std::vector<const PendingRequest*>& entries) const;
  Response conflict_response(const PendingRequest& entry, const std::string& why) const;
  std::vector<Version> versions_of(const PendingRequest& entry, std::list<Request>& made) const;
  Request request_of(uint32_t id, int rank) const;
  Response respond(const PendingRequest& entry, bool cache_enabled, Ready& batch);
  void fill_dims(Response& response, const PendingRequest& entry,
                 std::span<const Version> versions) const;
  std::string flaw_of_rows(const Response& response) const;
  std::string flaw_of_joined(const Response& response, const PendingRequest& entry) const;
  std::string settle_set(Response& response);
  void admit(Response& response, Ready& batch);
  void evict(uint32_t id, Ready& batch);

  const ProcessSets& sets_;
  size_t capacity_;
  uint32_t end_of_ids_;
  AfterJoin after_join_;
  PendingRequests pending_requests_;
  std::vector<PendingRequest> ready_;
  std::vector<Response> conflicts_;  // carry an error each
  size_t ready_bytes_ = 0;
  std::map<uint32_t, int> last_joined_;  // by set
  uint32_t next_set_ = kWorldSet + 1;

  uint32_t next_id_ = 0;
  std::unordered_map<uint32_t, Known> known_;
  std::unordered_map<OperationKey, uint32_t, OperationKeyHash> id_by_key_;
  std::list<uint32_t> uses_;  // least recently used first
  // Evicted, but ranks that have not yet applied that cycle may still announce them.
  std::map<uint32_t, Retired> retired_;
  uint64_t cycle_ = 0;  // that is being put together
};

}  // namespace hvdtune
