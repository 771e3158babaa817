#include "negotiate/pending_requests.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

template <typename Said>
void say(std::vector<std::pair<Said, RankMask>>& list, const Said& said, const RankMask& ranks) {
  const auto same =
      std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.first == said; });
  if (same == list.end()) {
    list.emplace_back(said, ranks);
  } else {
    same->second |= ranks;
  }
}

[[noreturn]] void refuse(int rank, const std::string& what, const std::string& name = {}) {
  throw Error(ErrorCode::kInternal, "rank " + std::to_string(rank) + " announced " + what, rank,
              name);
}

}  // namespace

PendingRequests::PendingRequests(const ProcessSets& sets, std::vector<std::vector<int>> branches,
                                 Resolve resolve)
    : sets_(sets), resolve_(std::move(resolve)) {
  for (const std::vector<int>& ranks : branches) {
    branches_.push_back({RankMask(ranks), {}});
    all_.ranks |= branches_.back().ranks;
  }
}

const RankMask& PendingRequests::members_of(Branch& branch, uint32_t process_set) {
  const auto known = branch.members.find(process_set);
  if (known != branch.members.end()) return known->second;
  RankMask mask;
  if (const std::vector<int>* ranks = sets_.find(process_set)) {
    for (const int rank : *ranks) {
      if (branch.ranks.contains(rank)) mask.add(rank);
    }
  }
  return branch.members.emplace(process_set, std::move(mask)).first->second;
}

const RankMask& PendingRequests::members(uint32_t process_set) {
  return members_of(all_, process_set);
}

const RankMask& PendingRequests::joined(uint32_t process_set) const {
  static const RankMask nobody;
  const auto found = joined_.find(process_set);
  return found == joined_.end() ? nobody : found->second;
}

void PendingRequests::add(size_t index, const Announce& announce, uint64_t now_ns) {
  Branch& branch = branches_[index];
  branch.waiting = announce.waiting;
  branch.cycles_seen = announce.cycles_seen;
  branch.cycles_applied = announce.cycles_applied;
  branch.adopted_version = announce.adopted_version;
  for (const uint32_t id : announce.cached) claim_id(branch, id, nullptr, now_ns);
  for (const IdClaim& claim : announce.partly) {
    const RankMask ranks = own(branch, claim.ranks);
    claim_id(branch, claim.id, &ranks, now_ns);
  }
  for (const Claim& claim : announce.requests) claim_request(branch, claim, now_ns);
  move_touched();
}

// Called after a whole message: one of its ranks may have joined after it announced an operation,
// which must not be complete with only the announcements of the others.
void PendingRequests::move_touched() {
  for (const PendingRequest& entry : joins_) {
    for (const auto& [key, pending] : pending_) {
      if (key.process_set == entry.key.process_set) touched_.push_back(key);
    }
  }
  if (!joins_.empty()) std::sort(touched_.begin(), touched_.end());
  for (const OperationKey& key : std::exchange(touched_, {})) {
    const auto found = pending_.find(key);
    if (found != pending_.end()) move_if_complete(key, found->second);
  }
  for (PendingRequest& entry : std::exchange(joins_, {})) ready_.push_back(std::move(entry));
}

void PendingRequests::note_self(bool waiting, uint64_t cycles_applied, uint32_t adopted_version) {
  Branch& self = branches_[0];
  self.waiting = waiting;
  self.cycles_seen = cycles_applied;
  self.cycles_applied = cycles_applied;
  self.adopted_version = adopted_version;
}

RankMask PendingRequests::own(const Branch& branch, const std::vector<int32_t>& ranks) const {
  RankMask mask;
  for (const int32_t rank : ranks) {
    if (rank < 0 || !branch.ranks.contains(rank))
      refuse(rank, "tensors through a rank that is not its parent");
    mask.add(rank);
  }
  if (mask.empty()) throw Error(ErrorCode::kInternal, "an announcement names no rank");
  return mask;
}

void PendingRequests::claim_id(Branch& branch, uint32_t id, const RankMask* ranks,
                               uint64_t now_ns) {
  const Request* request = resolve_(id);
  if (request == nullptr) {
    refuse(branch.ranks.ranks().front(), "unknown cache entry " + std::to_string(id));
  }
  const uint32_t set = request->process_set;
  // The set was removed while this was on its way.
  if (sets_.find(set) == nullptr) return;
  const RankMask& said = ranks != nullptr ? *ranks : members_of(branch, set);
  PendingRequest& entry = arrive(key_of(*request), said, bytes_of(*request), now_ns);
  say(entry.by_id, id, said);
  entry.cycles_seen = std::min(entry.cycles_seen, branch.cycles_seen);
  touched_.push_back(entry.key);
}

void PendingRequests::claim_request(const Branch& branch, const Claim& claim, uint64_t now_ns) {
  const Request& request = claim.request;
  const RankMask ranks = own(branch, claim.ranks);
  if (sets_.find(request.process_set) == nullptr) return;
  for (const int32_t rank : claim.ranks) {
    if (!sets_.includes(request.process_set, rank)) {
      refuse(rank, "an operation of a process set it is not in", request.name);
    }
  }
  if (request.op == OpType::kJoin) return join(claim, ranks, now_ns);
  PendingRequest& entry = arrive(key_of(request), ranks, bytes_of(request), now_ns);
  say(entry.in_full, request, ranks);
  touched_.push_back(entry.key);
}

void PendingRequests::join(const Claim& claim, const RankMask& ranks, uint64_t now_ns) {
  const uint32_t set = claim.request.process_set;
  RankMask& joined = joined_[set];
  if (joined.meets(ranks)) refuse(claim.ranks.front(), "its join twice", claim.request.name);
  joined |= ranks;
  PendingRequest entry;
  entry.key = key_of(claim.request);
  entry.first_ns = now_ns;
  entry.cycles_seen = std::numeric_limits<uint64_t>::max();
  entry.who = ranks;
  entry.in_full.emplace_back(claim.request, ranks);
  joins_.push_back(std::move(entry));
}

PendingRequest& PendingRequests::arrive(OperationKey key, const RankMask& ranks, size_t bytes,
                                        uint64_t now_ns) {
  PendingRequest& entry = pending_[key];
  if (entry.who.empty()) {
    entry.first_ns = now_ns;
    entry.cycles_seen = std::numeric_limits<uint64_t>::max();
    entry.bytes = bytes;
    entry.key = std::move(key);
  }
  if (entry.who.meets(ranks)) {
    refuse(ranks.ranks().front(), "tensor \"" + entry.key.name + "\" twice", entry.key.name);
  }
  entry.who |= ranks;
  return entry;
}

bool PendingRequests::is_complete(const PendingRequest& entry) {
  RankMask accounted = entry.who;
  accounted |= joined(entry.key.process_set);
  return accounted.covers(members(entry.key.process_set));
}

// `key` and `entry` may be the pending entry's own.
void PendingRequests::move_if_complete(const OperationKey& key, const PendingRequest& entry) {
  if (!is_complete(entry)) return;
  auto node = pending_.extract(key);
  ready_bytes_ += node.mapped().bytes;
  ready_.push_back(std::move(node.mapped()));
}

std::vector<PendingRequest> PendingRequests::take_ready() {
  ready_bytes_ = 0;
  return std::exchange(ready_, {});
}

std::vector<PendingRequest> PendingRequests::take_partial() {
  std::vector<PendingRequest> list;
  for (auto& [key, entry] : pending_) {
    if (entry.forwarded.covers(entry.who)) continue;
    list.push_back(entry);
    entry.forwarded = entry.who;
  }
  return list;
}

bool PendingRequests::has_unforwarded() const {
  return std::any_of(pending_.begin(), pending_.end(), [](const auto& item) {
    return !item.second.forwarded.covers(item.second.who);
  });
}

void PendingRequests::drop_set(uint32_t process_set) {
  std::erase_if(pending_, [&](const auto& item) { return item.first.process_set == process_set; });
  joined_.erase(process_set);
  all_.members.erase(process_set);
  for (Branch& branch : branches_) branch.members.erase(process_set);
}

bool PendingRequests::everybody_waits() const {
  return std::all_of(branches_.begin(), branches_.end(), [this](const Branch& branch) {
    return branch.waiting && branch.cycles_applied == branches_[0].cycles_applied;
  });
}

uint32_t PendingRequests::adopted_version() const {
  uint32_t least = std::numeric_limits<uint32_t>::max();
  for (const Branch& branch : branches_) least = std::min(least, branch.adopted_version);
  return least;
}

uint64_t PendingRequests::cycles_applied() const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Branch& branch : branches_) least = std::min(least, branch.cycles_applied);
  return least;
}

uint64_t PendingRequests::cycles_seen() const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Branch& branch : branches_) least = std::min(least, branch.cycles_seen);
  for (const auto& [key, entry] : pending_) least = std::min(least, entry.cycles_seen);
  for (const PendingRequest& entry : ready_) least = std::min(least, entry.cycles_seen);
  return least;
}

void put_claims(PendingRequests& pending_requests, const std::vector<PendingRequest>& entries,
                Announce& announce) {
  announce.adopted_version = pending_requests.adopted_version();
  announce.cycles_seen = pending_requests.cycles_seen();
  announce.cycles_applied = pending_requests.cycles_applied();
  announce.waiting = pending_requests.everybody_waits();
  for (const PendingRequest& entry : entries) {
    // The cache numbers keep the meaning that they had when they were announced.
    announce.cycles_seen = std::min(announce.cycles_seen, entry.cycles_seen);
    const bool whole = entry.forwarded.empty() && entry.in_full.empty() &&
                       entry.by_id.size() == 1 &&
                       entry.by_id[0].second == pending_requests.members(entry.key.process_set);
    if (whole) {
      announce.cached.push_back(entry.by_id[0].first);
      continue;
    }
    for (const auto& [id, ranks] : entry.by_id) {
      RankMask fresh = ranks;
      fresh -= entry.forwarded;
      if (!fresh.empty()) announce.partly.push_back({id, fresh.ranks()});
    }
    for (const auto& [request, ranks] : entry.in_full) {
      RankMask fresh = ranks;
      fresh -= entry.forwarded;
      if (!fresh.empty()) announce.requests.push_back({request, fresh.ranks()});
    }
  }
  std::sort(announce.cached.begin(), announce.cached.end());
}

}  // namespace hvdtune
