// Ranks in a random tree, without threads or sockets: every message is delayed at random, and every
// rank must understand every cycle alike.
#include <deque>
#include <memory>
#include <random>

#include "check.h"
#include "negotiate/fusion.h"
#include "negotiate/negotiator.h"
#include "negotiate/response_cache.h"
#include "transport/control_tree.h"

using namespace hvdtune;

namespace {

struct Rank {
  int number = 0;
  int parent = -1;
  std::vector<int> children;
  ProcessSets sets{1};
  ResponseCache cache;
  std::unique_ptr<PendingRequests> pending_requests;  // all but the root's
  std::unique_ptr<Negotiator> negotiator;             // the root's
  std::map<OperationKey, Request> in_flight;
  std::vector<OperationKey> to_announce;
  std::deque<Announce> outbox;
  std::deque<Cycle> inbox;
  uint64_t cycles_seen = 0;
  bool cache_enabled = true;
  std::map<OperationKey, int> used;                  // how often each name was submitted
  std::map<uint32_t, std::vector<std::string>> log;  // what it was told, by process set
};

// What rank `rank` submits the k-th time for a name: the same on all ranks but for the first
// dimension of an allgather, and now and then for a mistake.
Request request_for(const OperationKey& key, int use, int rank, unsigned seed) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(key.name)) + seed +
                      static_cast<unsigned>(use / 3) * 977U);
  Request request;
  request.name = key.name;
  request.process_set = key.process_set;
  request.op = random() % 4 == 0 ? OpType::kAllgather : OpType::kAllreduce;
  request.tensors.resize(1 + random() % 2);
  for (TensorSpec& tensor : request.tensors) {
    tensor.shape = {static_cast<int64_t>(random() % 5), 3};
    if (request.op == OpType::kAllgather && random() % 2 == 0) tensor.shape[0] += rank;
  }
  if (random() % 12 == 0 && rank == 1) request.tensors[0].dtype = DType::kFloat64;
  return request;
}

class Model {
 public:
  explicit Model(unsigned seed)
      : seed_(seed), random_(seed), ranks_(1 + random_() % 9), names_(1 + random_() % 12) {
    const auto size = static_cast<int>(ranks_.size());
    const ProcessSets sets = make_sets(size);
    const std::vector<int> parents = control_parents(make_hosts(size), 1 + random_() % 4);
    for (int number = 0; number < size; ++number) {
      Rank& rank = ranks_[static_cast<size_t>(number)];
      rank.number = number;
      rank.parent = parents[static_cast<size_t>(number)];
      rank.sets = sets;
      std::vector<std::vector<int>> branches = control_branches(parents, number);
      for (const std::vector<int>& branch : branches) rank.children.push_back(branch.front());
      branches.insert(branches.begin(), {number});
      if (number == 0) {
        rank.negotiator =
            std::make_unique<Negotiator>(rank.sets, branches, capacities[random_() % 5]);
      } else {
        rank.pending_requests = std::make_unique<PendingRequests>(
            rank.sets, branches, [&rank](uint32_t id) { return rank.cache.request_of(id); });
      }
    }
  }

  void run(int turns) {
    for (int turn = 0; turn < turns; ++turn) step();
    drain();
    for (const Rank& rank : ranks_) {
      CHECK(rank.in_flight.empty());
      CHECK_EQ(rank.cache.size(), ranks_[0].cache.size());
      if (rank.pending_requests) CHECK(!rank.pending_requests->has_pending());
      for (const auto& [set, lines] : rank.log) {
        const int first = rank.sets.find(set)->front();
        CHECK(lines == ranks_[static_cast<size_t>(first)].log.at(set));
      }
    }
    CHECK(!root().negotiator->has_pending());
  }

 private:
  static constexpr size_t capacities[] = {0, 1, 2, 5, 64};

  Rank& root() { return ranks_[0]; }

  ProcessSets make_sets(int size) {
    ProcessSets sets(size);
    for (uint32_t set = 1; set <= 2; ++set) {
      std::vector<int> members;
      for (int rank = 0; rank < size; ++rank) {
        if (random_() % 2 == 0) members.push_back(rank);
      }
      if (!members.empty()) sets.add(set, members);
    }
    return sets;
  }

  std::vector<std::vector<int>> make_hosts(int size) {
    std::vector<std::vector<int>> hosts(1 + random_() % static_cast<unsigned>(size));
    for (int rank = 0; rank < size; ++rank) {
      hosts[static_cast<size_t>(rank) < hosts.size() ? static_cast<size_t>(rank)
                                                     : random_() % hosts.size()]
          .push_back(rank);
    }
    return hosts;
  }

  OperationKey any_key() {
    return {static_cast<uint32_t>(random_() % 3), "t" + std::to_string(random_() % names_)};
  }

  void step() {
    Rank& rank = ranks_[random_() % ranks_.size()];
    switch (random_() % 6) {
      case 0:
      case 1:
        return submit(rank, any_key());
      case 2:
        return announce(rank);
      case 3:
        return deliver_announce(rank);
      case 4:
        return emit();
      default:
        return deliver_cycle(rank);
    }
  }

  void submit(Rank& rank, const OperationKey& key) {
    if (!rank.sets.includes(key.process_set, rank.number) || rank.in_flight.contains(key)) return;
    rank.in_flight[key] = request_for(key, rank.used[key]++, rank.number, seed_);
    rank.to_announce.push_back(key);
  }

  void announce(Rank& rank) {
    Announce own;
    own.cycles_seen = rank.cycles_seen;
    own.cycles_applied = rank.cycles_seen;
    own.waiting = random_() % 3 == 0;
    for (const OperationKey& key : rank.to_announce) {
      const Request& request = rank.in_flight.at(key);
      const auto id = rank.cache_enabled ? rank.cache.find(request) : std::nullopt;
      if (id) {
        own.cached.push_back(*id);
      } else {
        own.requests.push_back({request, {rank.number}});
      }
    }
    rank.to_announce.clear();
    take_announce(rank, 0, own);
    if (rank.pending_requests) pass_on(rank);
  }

  void pass_on(Rank& rank) {
    std::vector<PendingRequest> entries = rank.pending_requests->take_ready();
    if (entries.empty() && rank.pending_requests->everybody_waits())
      entries = rank.pending_requests->take_partial();
    Announce announce;
    put_claims(*rank.pending_requests, entries, announce);
    rank.outbox.push_back(decode_announce(encode(announce)));
  }

  void take_announce(Rank& rank, size_t branch, const Announce& announce) {
    if (rank.negotiator) return rank.negotiator->announce(branch, announce, ++now_);
    rank.pending_requests->add(branch, announce, ++now_);
    rank.cache.drop_forgotten(rank.pending_requests->cycles_seen());
  }

  void deliver_announce(Rank& rank) {
    if (rank.outbox.empty()) return;
    Rank& parent = ranks_[static_cast<size_t>(rank.parent)];
    const auto at = std::ranges::find(parent.children, rank.number) - parent.children.begin();
    take_announce(parent, static_cast<size_t>(at) + 1, rank.outbox.front());
    rank.outbox.pop_front();
  }

  void emit() {
    Negotiator& negotiator = *root().negotiator;
    if (!negotiator.has_ready()) return;
    if (random_() % 40 == 0) cache_enabled_ = !cache_enabled_;
    Cycle cycle;
    cycle.number = ++cycles_;
    cycle.setting = Setting{};
    cycle.setting->cache_enabled = cache_enabled_;
    Ready ready = negotiator.take_ready(cache_enabled_, cycle.number);
    FusionPlan plan = plan_fusion(std::move(ready.responses), 100);
    cycle.responses = std::move(plan.responses);
    cycle.buckets = std::move(plan.buckets);
    cycle.evicted = std::move(ready.evicted);
    take_cycle(root(), cycle);
  }

  void deliver_cycle(Rank& rank) {
    if (rank.inbox.empty()) return;
    const Cycle cycle = std::move(rank.inbox.front());
    rank.inbox.pop_front();
    take_cycle(rank, cycle);
  }

  void take_cycle(Rank& rank, Cycle cycle) {
    for (const int child : rank.children) {
      ranks_[static_cast<size_t>(child)].inbox.push_back(decode_cycle(encode(cycle)));
    }
    rank.cycles_seen = cycle.number;
    rank.cache_enabled = cycle.setting->cache_enabled;
    for (Response& response : cycle.responses) {
      if (response.compact) rank.cache.complete(response);
    }
    for (const uint32_t id : cycle.evicted) rank.cache.forget(id, cycle.number);
    for (const Response& response : cycle.responses) take(rank, response);
  }

  void take(Rank& rank, const Response& response) {
    const Request& told = response.request;
    if (!response.error.empty()) {
      (rank.pending_requests ? *rank.pending_requests : rank.negotiator->pending_requests())
          .drop(key_of(told));
    }
    const auto mine = rank.in_flight.find(key_of(told));
    const bool member = rank.sets.includes(told.process_set, rank.number);
    CHECK_EQ(member, mine != rank.in_flight.end());
    if (response.cache_id != kNoCacheId && !response.compact && response.error.empty()) {
      rank.cache.remember(member ? &mine->second : nullptr, response);
    }
    if (!member) return;
    std::string line = told.name + (response.error.empty() ? "" : " error");
    if (response.error.empty()) check_dims(rank, mine->second, response);
    for (const int64_t dim : response.first_dims) line += " " + std::to_string(dim);
    rank.log[told.process_set].push_back(line);
    rank.in_flight.erase(mine);
  }

  static void check_dims(const Rank& rank, const Request& mine, const Response& response) {
    if (mine.op != OpType::kAllgather) {
      CHECK(response.request == mine);
      return;
    }
    const std::vector<int>& members = *rank.sets.find(mine.process_set);
    const size_t n = members.size();
    const auto me = std::ranges::find(members, rank.number) - members.begin();
    CHECK_EQ(response.first_dims.size(), n * mine.tensors.size());
    for (size_t i = 0; i < mine.tensors.size(); ++i) {
      CHECK_EQ(response.first_dims[i * n + static_cast<size_t>(me)], mine.tensors[i].shape[0]);
    }
  }

  // Every rank catches up with the one that used each name most.
  void drain() {
    std::map<OperationKey, int> most;
    for (const Rank& rank : ranks_) {
      for (const auto& [key, uses] : rank.used) most[key] = std::max(most[key], uses);
    }
    for (bool behind = true; behind;) {
      behind = false;
      for (size_t i = ranks_.size(); i-- > 0;) {
        Rank& rank = ranks_[i];
        for (const auto& [key, uses] : most) {
          if (!rank.sets.includes(key.process_set, rank.number)) continue;
          if (rank.used[key] < uses) submit(rank, key);
          behind |= rank.used[key] < uses;
        }
        announce(rank);
        while (!rank.outbox.empty()) deliver_announce(rank);
      }
      emit();
      for (Rank& rank : ranks_) {
        while (!rank.inbox.empty()) deliver_cycle(rank);
        behind |= !rank.in_flight.empty();
      }
    }
  }

  unsigned seed_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  unsigned names_;
  bool cache_enabled_ = true;
  uint64_t now_ = 0;
  uint64_t cycles_ = 0;
};

}  // namespace

TEST(all_ranks_understand_all_cycles_alike_in_any_interleaving) {
  for (unsigned seed = 0; seed < 600; ++seed) Model(seed).run(400);
}
