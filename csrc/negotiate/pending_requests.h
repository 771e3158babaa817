// The requests that some ranks below one rank of the negotiation tree have announced, and others
// not.
//
// Every rank has one. It counts what its own caller and its children announce; an operation that
// all ranks from here down (those in its process set) have announced is ready to be passed on to
// the parent as one claim, or on the root to be answered. So a rank sends one message per cycle
// whatever the number of ranks below it.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/rank_mask.h"
#include "negotiate/process_sets.h"
#include "wire/message.h"

namespace hvdtune {

// Identifies an operation: names are unique within a process set.
struct OperationKey {
  uint32_t process_set = kWorldSet;
  std::string name;

  auto operator<=>(const OperationKey&) const = default;
};
struct OperationKeyHash {
  size_t operator()(const OperationKey& key) const {
    return std::hash<std::string_view>()(key.name) ^ (size_t{key.process_set} * 0x9e3779b97f4a7c15);
  }
};

inline OperationKey key_of(const Request& request) { return {request.process_set, request.name}; }

// One operation and who has announced it how.
struct PendingRequest {
  OperationKey key;
  size_t bytes = 0;
  uint64_t first_ns = 0;
  uint64_t cycles_seen = 0;  // by the ranks that announced it by number
  RankMask who;
  RankMask forwarded;  // passed on before
  std::vector<std::pair<uint32_t, RankMask>> by_id;
  std::vector<std::pair<Request, RankMask>> in_full;
};

// Pure bookkeeping: no I/O, no clock. One thread.
class PendingRequests {
 public:
  // The request that a cache number stands for, null when it is unknown. The pointer need not
  // outlive the next call.
  using Resolve = std::function<const Request*(uint32_t id)>;

  // `branches`: this rank itself, then the ranks below each child. `sets` and
  // what `resolve` uses must outlive this object.
  PendingRequests(const ProcessSets& sets, std::vector<std::vector<int>> branches, Resolve resolve);

  // Throws Error(kInternal) when the branch announces what it cannot: a rank that is not its own,
  // an operation twice, an unknown number.
  void add(size_t branch, const Announce& announce, uint64_t now_ns);
  // Updates the state of branch 0, this rank, which announces nothing.
  void note_self(bool waiting, uint64_t cycles_applied, uint32_t adopted_version);

  bool has_ready() const { return !ready_.empty(); }
  size_t ready_bytes() const { return ready_bytes_; }
  bool has_pending() const { return !pending_.empty(); }
  const std::unordered_map<OperationKey, PendingRequest, OperationKeyHash>& pending() const {
    return pending_;
  }
  // In the order in which they became ready. Joins come at once, not when all have joined.
  std::vector<PendingRequest> take_ready();
  // The parts not passed on yet of what is not ready: worth telling when nobody here can go on.
  std::vector<PendingRequest> take_partial();
  bool has_unforwarded() const;
  // Answered, by an error, before it was complete.
  void drop(const OperationKey& key) { pending_.erase(key); }
  void drop_set(uint32_t process_set);
  // All ranks of the set have joined: they start anew.
  void end_join(uint32_t process_set) { joined_.erase(process_set); }
  const RankMask& joined(uint32_t process_set) const;

  // These cover all ranks below. A rank that announced its wait before the last cycle that this
  // rank has applied does not count as waiting: that cycle may have ended the wait.
  bool everybody_waits() const;
  uint32_t adopted_version() const;
  uint64_t cycles_applied() const;
  // A number that was forgotten in a later cycle than this may still be announced.
  uint64_t cycles_seen() const;
  // The ranks from here down that are in the set.
  const RankMask& members(uint32_t process_set);

 private:
  struct Branch {
    RankMask ranks;
    std::unordered_map<uint32_t, RankMask> members;  // by set
    bool waiting = false;
    uint64_t cycles_seen = 0;
    uint64_t cycles_applied = 0;
    uint32_t adopted_version = 0;
  };
  const RankMask& members_of(Branch& branch, uint32_t process_set);
  void claim_id(Branch& branch, uint32_t id, const RankMask* ranks, uint64_t now_ns);
  void claim_request(const Branch& branch, const Claim& claim, uint64_t now_ns);
  void join(const Claim& claim, const RankMask& ranks, uint64_t now_ns);
  RankMask own(const Branch& branch, const std::vector<int32_t>& ranks) const;
  PendingRequest& arrive(OperationKey key, const RankMask& ranks, size_t bytes, uint64_t now_ns);
  bool is_complete(const PendingRequest& entry);
  void move_if_complete(const OperationKey& key, const PendingRequest& entry);
  void move_touched();

  const ProcessSets& sets_;
  Resolve resolve_;
  std::vector<Branch> branches_;
  Branch all_;
  std::unordered_map<OperationKey, PendingRequest, OperationKeyHash> pending_;
  std::vector<PendingRequest> ready_;
  size_t ready_bytes_ = 0;
  std::unordered_map<uint32_t, RankMask> joined_;
  // These two belong to the message that is being added.
  std::vector<OperationKey> touched_;
  std::vector<PendingRequest> joins_;
};

// Says in `announce` what the entries hold and what its ranks have come to.
void put_claims(PendingRequests& pending_requests, const std::vector<PendingRequest>& entries,
                Announce& announce);

}  // namespace hvdtune
