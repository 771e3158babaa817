#include "negotiate/negotiator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// Whether the operation can run without data of the ranks that have joined. A scaled identity
// element is still one only for sums.
bool goes_without_joined(const Request& request, const RankMask& who) {
  if (request.in_graph) return false;  // their contribution when it runs is unknown
  const bool sums = request.reduce_op == ReduceOp::kSum || request.reduce_op == ReduceOp::kAverage;
  switch (row_of(request.op).with_joined) {
    case WithJoined::kNever:
      return false;
    case WithJoined::kIdentity:
      return sums || (request.reduce_op != ReduceOp::kAdasum && request.prescale == 1.0);
    case WithJoined::kNotRoot:
      return who.contains(request.root);
    case WithJoined::kAlways:
      return true;
  }
  return false;
}

}  // namespace

Negotiator::Negotiator(const ProcessSets& sets, std::vector<std::vector<int>> branches,
                       size_t cache_capacity, uint32_t cache_ids, AfterJoin after_join)
    : sets_(sets),
      capacity_(cache_capacity),
      end_of_ids_(cache_ids),
      after_join_(after_join),
      pending_requests_(sets, std::move(branches), [this](uint32_t id) {
        const Response* response = response_of(id);
        return response != nullptr ? &response->request : nullptr;
      }) {}

const Response* Negotiator::response_of(uint32_t id) const {
  const auto entry = known_.find(id);
  if (entry != known_.end()) return &entry->second.response;
  const auto old = retired_.find(id);
  return old != retired_.end() ? &old->second.response : nullptr;
}

void Negotiator::announce(size_t branch, const Announce& announce, uint64_t now_ns) {
  pending_requests_.add(branch, announce, now_ns);
  std::vector<PendingRequest> joins;
  for (PendingRequest& entry : pending_requests_.take_ready()) {
    if (!entry.in_full.empty() && entry.in_full[0].first.op == OpType::kJoin) {
      joins.push_back(std::move(entry));
      continue;
    }
    ready_bytes_ += entry.bytes;
    ready_.push_back(std::move(entry));
  }
  // Answered after all that waited for it: a caller that comes back may use the names again.
  for (const PendingRequest& entry : joins) note_join(entry);
  if (ready_.empty() && everybody_waits()) settle_conflicts();
  if (!retired_.empty()) {
    uint64_t seen = pending_requests_.cycles_seen();
    for (const PendingRequest& entry : ready_) seen = std::min(seen, entry.cycles_seen);
    std::erase_if(retired_, [&](const auto& item) { return item.second.evicting_cycle <= seen; });
  }
}

// The join is answered when the last rank of the set has joined.
void Negotiator::note_join(const PendingRequest& entry) {
  const uint32_t set = entry.key.process_set;
  last_joined_[set] = entry.who.ranks().back();
  if (!pending_requests_.joined(set).covers(pending_requests_.members(set))) return;
  // Two ranks' joins may arrive at once; one answer is for all.
  if (std::ranges::any_of(ready_, [&](const PendingRequest& one) { return one.key == entry.key; }))
    return;
  PendingRequest all = entry;
  all.who = pending_requests_.members(set);
  ready_.push_back(std::move(all));
}

// Names are "operation.name". Ranks that wait for different operations under one name would never
// stop waiting: allreduce.x on some and allgather.x on all others.
void Negotiator::settle_conflicts() {
  std::map<std::pair<uint32_t, std::string>, std::vector<const PendingRequest*>> by_stem;
  for (const auto& [key, entry] : pending_requests_.pending()) {
    by_stem[{key.process_set, key.name.substr(key.name.find('.') + 1)}].push_back(&entry);
  }
  std::vector<OperationKey> settled;
  for (const auto& [stem, entries] : by_stem) {
    if (!conflict(stem.first, entries)) continue;
    std::list<Request> made;
    std::string announced;
    for (const PendingRequest* entry : entries) {
      for (const auto& [request, ranks] : versions_of(*entry, made)) {
        announced +=
            (announced.empty() ? "" : ", ") + describe(ranks) + " announced " + describe(*request);
      }
    }
    const std::string why = "tensor \"" + stem.second + "\" differs between ranks: " + announced +
                            "; every rank must call the same operation";
    for (const PendingRequest* entry : entries) {
      conflicts_.push_back(conflict_response(*entry, why));
      settled.push_back(entry->key);
    }
  }
  for (const OperationKey& key : settled) pending_requests_.drop(key);
}

// Whether each rank of the set has announced exactly one of these.
bool Negotiator::conflict(uint32_t process_set,
                          const std::vector<const PendingRequest*>& entries) const {
  const std::vector<int>* ranks = sets_.find(process_set);
  if (entries.size() < 2 || ranks == nullptr) return false;
  return std::all_of(ranks->begin(), ranks->end(), [&](int rank) {
    return std::count_if(entries.begin(), entries.end(), [&](const PendingRequest* entry) {
             return entry->who.contains(rank);
           }) == 1;
  });
}

Response Negotiator::conflict_response(const PendingRequest& entry, const std::string& why) const {
  std::list<Request> made;
  Response response;
  response.request = *versions_of(entry, made)[0].first;
  response.error = why;
  return response;
}

Request Negotiator::request_of(uint32_t id, int rank) const {
  const Response& response = *response_of(id);
  Request request = response.request;
  const OpRow& row = row_of(request.op);
  if (!row.is_ragged) return request;
  const std::vector<int>& ranks = *sets_.find(request.process_set);
  const auto at = static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin());
  if (row.takes_splits) {
    const auto own = response.first_dims.begin() + static_cast<ptrdiff_t>(at * ranks.size());
    request.splits.assign(own, own + static_cast<ptrdiff_t>(ranks.size()));
    request.tensors[0].shape[0] = 0;
    for (const int64_t rows : request.splits) request.tensors[0].shape[0] += rows;
    return request;
  }
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    request.tensors[t].shape[0] = response.first_dims[t * ranks.size() + at];
  }
  return request;
}

// Requests that exist only as numbers are kept in `made`.
std::vector<Version> Negotiator::versions_of(const PendingRequest& entry,
                                             std::list<Request>& made) const {
  std::vector<Version> versions;
  for (const auto& [request, ranks] : entry.in_full) versions.emplace_back(&request, ranks);
  for (const auto& [id, ranks] : entry.by_id) {
    if (!row_of(response_of(id)->request.op).is_ragged) {
      versions.emplace_back(&response_of(id)->request, ranks);
      continue;
    }
    for (const int rank : ranks.ranks()) {
      made.push_back(request_of(id, rank));
      versions.emplace_back(&made.back(), RankMask(std::span(&rank, 1)));
    }
  }
  return versions;
}

Ready Negotiator::take_ready(bool cache_enabled, uint64_t cycle) {
  Ready batch;
  cycle_ = cycle;
  for (const PendingRequest& entry : std::exchange(ready_, {})) {
    batch.responses.push_back(respond(entry, cache_enabled, batch));
  }
  ready_bytes_ = 0;
  for (Response& response : conflicts_) batch.responses.push_back(std::move(response));
  conflicts_.clear();
  return batch;
}

Response Negotiator::respond(const PendingRequest& entry, bool cache_enabled, Ready& batch) {
  Response response;
  const RankMask& members = pending_requests_.members(entry.key.process_set);
  const bool everybody = entry.who.covers(members);
  if (entry.in_full.empty() && entry.by_id.size() == 1 && everybody) {
    const auto known = known_.find(entry.by_id[0].first);
    if (known != known_.end()) {
      uses_.splice(uses_.end(), uses_, known->second.use);
      known->second.used_in = cycle_;
      response = known->second.response;
      response.compact = true;
      return response;
    }
  }
  std::list<Request> made;
  const std::vector<Version> versions = versions_of(entry, made);
  const auto lowest =
      std::min_element(versions.begin(), versions.end(), [](const Version& a, const Version& b) {
        return a.second.ranks().front() < b.second.ranks().front();
      });
  response.request = *lowest->first;
  response.error = disagreement(versions);
  if (response.error.empty()) response.error = flaw_of_joined(response, entry);
  if (response.error.empty()) response.error = settle_set(response);
  if (!response.error.empty()) return response;
  fill_dims(response, entry, versions);
  response.error = flaw_of_rows(response);
  if (!response.error.empty()) return response;
  const bool keep = cache_enabled && capacity_ > 0 && everybody;
  if (keep && row_of(response.request.op).is_cached) admit(response, batch);
  return response;
}

void Negotiator::fill_dims(Response& response, const PendingRequest& entry,
                           std::span<const Version> versions) const {
  const Request& request = response.request;
  if (request.op == OpType::kJoin) response.first_dims = {last_joined_.at(request.process_set)};
  const OpRow& row = row_of(request.op);
  if (!row.is_ragged) return;
  const std::vector<int>& ranks = *sets_.find(entry.key.process_set);
  const size_t n = ranks.size();
  const size_t rows = row.takes_splits ? n : request.tensors.size();
  response.first_dims.assign(rows * n, 0);
  for (const auto& [said, mask] : versions) {
    for (const int rank : mask.ranks()) {
      const auto at = static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin());
      for (size_t i = 0; i < rows; ++i) {
        if (row.takes_splits) {
          response.first_dims[at * n + i] = said->splits[i];
        } else {
          response.first_dims[i * n + at] = said->tensors[i].shape[0];
        }
      }
    }
  }
}

// Without bytes in them there may be more rows than can be counted.
std::string Negotiator::flaw_of_rows(const Response& response) const {
  const Request& request = response.request;
  const OpRow& row = row_of(request.op);
  if (!row.is_ragged) return {};
  const size_t n = sets_.find(request.process_set)->size();
  // Of an allgather one tensor's rows lie together, of an alltoall those that one rank sends.
  const size_t results = row.takes_splits ? n : request.tensors.size();
  for (size_t result = 0; result < results; ++result) {
    int64_t left = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < n; ++i) {
      left -= response.first_dims[row.takes_splits ? i * n + result : result * n + i];
      if (left >= 0) continue;
      return "tensor \"" + request.name + "\": " + describe(request) +
             " gives a rank more rows than int64 can count";
    }
  }
  return {};
}

// Ranks that have joined give identity elements to a reduction and no rows to an allgather; there
// is nothing they could give to the rest.
std::string Negotiator::flaw_of_joined(const Response& response,
                                       const PendingRequest& entry) const {
  const Request& request = response.request;
  const RankMask& joined = pending_requests_.joined(request.process_set);
  if (entry.who.covers(joined)) return {};
  const OpRow& row = row_of(request.op);
  const bool refused = after_join_ == AfterJoin::kAllreduce && (row.has_rows || row.has_root);
  const bool possible = goes_without_joined(request, entry.who);
  if (possible && !refused) return {};
  RankMask gone = joined;
  gone -= entry.who;
  const std::string tensor = "tensor \"" + request.name + "\": " + describe(request);
  if (!possible) return tensor + " needs data from " + describe(gone) + ", which joined before";
  return tensor + " is not allowed after the join of " + describe(gone) +
         ", as in Horovod; unset HVDTUNE_JOIN to allow it";
}

// Gives a new set its number. Returns why it cannot be added or removed.
std::string Negotiator::settle_set(Response& response) {
  const Request& request = response.request;
  if (request.op == OpType::kAddSet) {
    const std::vector<int> ranks(request.splits.begin(), request.splits.end());
    for (const auto& [id, members] : sets_.all()) {
      if (members == ranks) {
        return "process set " + std::to_string(id) + " already has these ranks";
      }
    }
    response.first_dims = {next_set_++};
  }
  if (request.op == OpType::kRemoveSet &&
      sets_.find(static_cast<uint32_t>(request.splits[0])) == nullptr) {
    return "process set " + std::to_string(request.splits[0]) + " does not exist";
  }
  return {};
}

// An operation ends with its answer, so no other answer of a batch has its name, and whatever is
// evicted here, no answer of this batch is by its number.
void Negotiator::admit(Response& response, Ready& batch) {
  const auto old = id_by_key_.find(key_of(response.request));
  if (old != id_by_key_.end()) evict(old->second, batch);
  if (next_id_ == end_of_ids_) return;
  if (known_.size() >= capacity_) {
    const uint32_t least_used = uses_.front();
    // A batch of more names than fit keeps those that came first: others would only push each
    // other out, and find nothing in the next step.
    if (known_.at(least_used).used_in == cycle_) return;
    evict(least_used, batch);
  }
  response.cache_id = next_id_++;
  uses_.push_back(response.cache_id);
  known_.emplace(response.cache_id, Known{response, std::prev(uses_.end()), cycle_});
  id_by_key_[key_of(response.request)] = response.cache_id;
}

void Negotiator::evict(uint32_t id, Ready& batch) {
  const auto entry = known_.find(id);
  id_by_key_.erase(key_of(entry->second.response.request));
  uses_.erase(entry->second.use);
  retired_.emplace(id, Retired{std::move(entry->second.response), cycle_});
  known_.erase(entry);
  batch.evicted.push_back(id);
}

}  // namespace hvdtune
