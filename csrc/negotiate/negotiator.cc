#include "negotiate/negotiator.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/status.h"
#include "negotiate/validate.h"

namespace hvdtune {

Negotiator::Negotiator(int size, size_t cache_capacity)
    : size_(size),
      capacity_(cache_capacity),
      waiting_(static_cast<size_t>(size), false),
      cycles_seen_(static_cast<size_t>(size), 0) {}

void Negotiator::announce(int rank, const Announce& announce, uint64_t now_ns) {
  const auto at = static_cast<size_t>(rank);
  waiting_[at] = announce.waiting;
  cycles_seen_[at] = announce.cycles_seen;
  for (const uint32_t id : announce.cached) {
    const auto entry = known_.find(id);
    const auto old = retired_.find(id);
    if (entry == known_.end() && old == retired_.end()) {
      throw Error(
          ErrorCode::kInternal,
          "rank " + std::to_string(rank) + " announced unknown cache entry " + std::to_string(id),
          rank);
    }
    const Request& request =
        entry != known_.end() ? entry->second.by_rank[at] : old->second.second[at];
    const std::string name = request.name;
    Pending& pending = arrive(rank, name, now_ns);
    if (entry != known_.end()) {
      pending.ids[at] = id;
    } else {
      pending.in_full.emplace(rank, request);
    }
    settle(name, pending);
  }
  for (const Request& request : announce.requests) {
    Pending& pending = arrive(rank, request.name, now_ns);
    pending.in_full.emplace(rank, request);
    settle(request.name, pending);
  }
  if (ready_.empty() && everybody_waits()) settle_conflicts();
  drop_retired();
}

bool Negotiator::everybody_waits() const {
  return std::all_of(waiting_.begin(), waiting_.end(), [](bool waits) { return waits; });
}

Negotiator::Pending& Negotiator::arrive(int rank, const std::string& name, uint64_t now_ns) {
  Pending& pending = pending_[name];
  if (pending.ids.empty()) {
    pending.ids.assign(static_cast<size_t>(size_), kNoCacheId);
    pending.first_ns = now_ns;
  }
  if (announced(pending, rank)) {
    throw Error(ErrorCode::kInternal,
                "rank " + std::to_string(rank) + " announced tensor \"" + name + "\" twice", rank,
                name);
  }
  ++pending.count;
  pending.last_ns = now_ns;
  pending.last_rank = rank;
  return pending;
}

void Negotiator::settle(const std::string& name, Pending& pending) {
  if (pending.count < size_) return;
  ready_.push_back(name);
  ready_bytes_ += bytes_of(request_of(pending, 0));
}

// Names are "operation.name". Ranks that wait for different operations under one name would wait
// for ever: allreduce.x on some and allgather.x on all others.
void Negotiator::settle_conflicts() {
  std::map<std::string, std::vector<std::string>> by_stem;
  for (const auto& [name, pending] : pending_)
    by_stem[name.substr(name.find('.') + 1)].push_back(name);
  for (const auto& [stem, names] : by_stem) {
    if (!conflict(names)) continue;
    std::string said;
    for (const std::string& name : names) {
      for (int rank = 0; rank < size_; ++rank) {
        if (!announced(pending_.at(name), rank)) continue;
        said += (said.empty() ? "rank " : ", rank ") + std::to_string(rank) + " announced " +
                describe(request_of(pending_.at(name), rank));
      }
    }
    for (const std::string& name : names) {
      Response response;
      const Pending& pending = pending_.at(name);
      response.request = request_of(pending, pending.last_rank);
      response.error = "tensor \"" + stem + "\" differs between ranks: " + said +
                       "; every rank must call the same operation";
      conflicts_.push_back(std::move(response));
      pending_.erase(name);
    }
  }
}

// Whether each rank has announced exactly one of these.
bool Negotiator::conflict(const std::vector<std::string>& names) const {
  if (names.size() < 2) return false;
  for (int rank = 0; rank < size_; ++rank) {
    const auto count = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      return announced(pending_.at(name), rank);
    });
    if (count != 1) return false;
  }
  return true;
}

bool Negotiator::announced(const Pending& pending, int rank) {
  return pending.ids[static_cast<size_t>(rank)] != kNoCacheId || pending.in_full.contains(rank);
}

const Request& Negotiator::request_of(const Pending& pending, int rank) const {
  const auto at = static_cast<size_t>(rank);
  const uint32_t id = pending.ids[at];
  if (id == kNoCacheId) return pending.in_full.at(rank);
  const auto entry = known_.find(id);
  return entry != known_.end() ? entry->second.by_rank[at] : retired_.at(id).second[at];
}

Ready Negotiator::take_ready(bool cache_enabled, uint64_t cycle) {
  Ready batch;
  evicting_cycle_ = cycle;
  for (const std::string& name : ready_) {
    const auto pending = pending_.find(name);
    batch.responses.push_back(respond(name, pending->second, cache_enabled, batch));
    pending_.erase(pending);
  }
  ready_.clear();
  ready_bytes_ = 0;
  for (Response& response : conflicts_) batch.responses.push_back(std::move(response));
  conflicts_.clear();
  return batch;
}

Response Negotiator::respond(const std::string& name, const Pending& pending, bool cache_enabled,
                             Ready& batch) {
  Response response;
  response.last_rank = pending.last_rank;
  response.late_ns = pending.last_ns - pending.first_ns;

  const uint32_t id = pending.ids[0];
  const bool same = id != kNoCacheId && known_.contains(id) &&
                    std::all_of(pending.ids.begin(), pending.ids.end(),
                                [&](uint32_t other) { return other == id; });
  if (same) {
    Known& entry = known_.at(id);
    uses_.splice(uses_.end(), uses_, entry.use);
    response.compact = true;
    response.cache_id = id;
    response.request = entry.by_rank[0];
    return response;
  }

  std::vector<const Request*> by_rank;
  for (int rank = 0; rank < size_; ++rank) by_rank.push_back(&request_of(pending, rank));
  response.error = disagreement(by_rank);
  response.request = *by_rank[0];
  response.request.name = name;
  if (!response.error.empty()) return response;
  if (response.request.op == OpType::kAllgather) {
    for (const Request* request : by_rank) response.first_dims.push_back(request->shape[0]);
  }
  if (cache_enabled && capacity_ > 0) admit(response, std::move(by_rank), batch);
  return response;
}

void Negotiator::admit(Response& response, std::vector<const Request*> by_rank, Ready& batch) {
  std::vector<Request> requests;
  requests.reserve(by_rank.size());
  for (const Request* request : by_rank) requests.push_back(*request);
  const auto old = id_by_name_.find(response.request.name);
  if (old != id_by_name_.end()) evict(old->second, batch);
  while (known_.size() >= capacity_) evict(uses_.front(), batch);
  response.cache_id = next_id_++;
  uses_.push_back(response.cache_id);
  known_.emplace(response.cache_id, Known{std::move(requests), std::prev(uses_.end())});
  id_by_name_[response.request.name] = response.cache_id;
}

void Negotiator::evict(uint32_t id, Ready& batch) {
  const auto entry = known_.find(id);
  id_by_name_.erase(entry->second.by_rank[0].name);
  uses_.erase(entry->second.use);
  retired_.emplace(id, std::pair(evicting_cycle_, std::move(entry->second.by_rank)));
  known_.erase(entry);
  // A response of this batch that is compact needs its entry on every rank: it was taken from
  // known_ before, so tell it in full instead.
  for (Response& response : batch.responses) {
    if (response.compact && response.cache_id == id) {
      response.compact = false;
      response.cache_id = kNoCacheId;
      if (response.request.op == OpType::kAllgather) {
        for (const Request& request : retired_.at(id).second) {
          response.first_dims.push_back(request.shape[0]);
        }
      }
    } else if (response.cache_id == id) {
      response.cache_id = kNoCacheId;
    }
  }
  batch.evicted.push_back(id);
}

void Negotiator::drop_retired() {
  if (retired_.empty()) return;
  const uint64_t seen = *std::min_element(cycles_seen_.begin(), cycles_seen_.end());
  const auto unseen = [&](const auto& item) { return item.second.first > seen; };
  if (std::all_of(retired_.begin(), retired_.end(), unseen)) return;
  // Entries that some rank has announced and others have not are resolved through retired_.
  std::unordered_set<uint32_t> announced;
  for (const auto& [name, pending] : pending_) {
    announced.insert(pending.ids.begin(), pending.ids.end());
  }
  std::erase_if(retired_,
                [&](const auto& item) { return !unseen(item) && !announced.contains(item.first); });
}

std::vector<Stalled> Negotiator::stalled(uint64_t before_ns) const {
  std::vector<Stalled> list;
  for (const auto& [name, pending] : pending_) {
    if (pending.count == size_ || pending.first_ns >= before_ns) continue;
    Stalled stalled{name, {}, pending.first_ns};
    for (int rank = 0; rank < size_; ++rank) {
      if (!announced(pending, rank)) {
        stalled.missing_ranks.push_back(rank);
      }
    }
    list.push_back(std::move(stalled));
  }
  return list;
}

}  // namespace hvdtune
