// N ranks and a coordinator, without threads or sockets: every message is delayed at random, and
// every rank must understand every cycle alike.
#include <deque>
#include <random>
#include <set>

#include "check.h"
#include "negotiate/fusion.h"
#include "negotiate/negotiator.h"
#include "negotiate/response_cache.h"

using namespace hvdtune;

namespace {

struct Rank {
  ResponseCache cache;
  std::map<std::string, Request> in_flight;
  std::vector<std::string> to_announce;
  std::deque<Announce> outbox;
  std::deque<Cycle> inbox;
  uint64_t cycles_seen = 0;
  bool cache_enabled = true;
  std::map<std::string, int> used;  // how often each name was submitted
  std::vector<std::string> log;     // what it was told, as text
};

// What rank `rank` submits the k-th time for a name: the same on all ranks but for the first
// dimension of an allgather, and now and then for a mistake.
Request request_for(const std::string& name, int use, int rank, unsigned seed) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)) + seed +
                      static_cast<unsigned>(use / 3) * 977U);
  Request request;
  request.name = name;
  request.op = random() % 4 == 0 ? OpType::kAllgather : OpType::kAllreduce;
  request.shape = {static_cast<int64_t>(random() % 5), 3};
  if (request.op == OpType::kAllgather && random() % 2 == 0) request.shape[0] += rank;
  if (random() % 12 == 0 && rank == 1) request.dtype = DType::kFloat64;
  return request;
}

class Model {
 public:
  explicit Model(unsigned seed)
      : seed_(seed),
        random_(seed),
        ranks_(1 + random_() % 5),
        names_(1 + random_() % 12),
        negotiator_(static_cast<int>(ranks_.size()), capacities[random_() % 5]) {}

  void run(int turns) {
    for (int turn = 0; turn < turns; ++turn) step();
    drain();
    for (const Rank& rank : ranks_) {
      CHECK(rank.in_flight.empty());
      CHECK_EQ(rank.cache.size(), ranks_[0].cache.size());
      CHECK(rank.log == ranks_[0].log);
    }
    CHECK(!negotiator_.has_pending());
  }

 private:
  static constexpr size_t capacities[] = {0, 1, 2, 5, 64};

  void step() {
    Rank& rank = ranks_[random_() % ranks_.size()];
    const auto which = static_cast<int>(&rank - ranks_.data());
    switch (random_() % 6) {
      case 0:
      case 1:
        return submit(rank, which, "t" + std::to_string(random_() % names_));
      case 2:
        return announce(rank);
      case 3:
        return deliver_announce(rank, which);
      case 4:
        return emit();
      default:
        return deliver_cycle(rank, which);
    }
  }

  void submit(Rank& rank, int which, const std::string& name) {
    if (rank.in_flight.contains(name)) return;
    rank.in_flight[name] = request_for(name, rank.used[name]++, which, seed_);
    rank.to_announce.push_back(name);
  }

  void announce(Rank& rank) {
    Announce announce;
    announce.cycles_seen = rank.cycles_seen;
    for (const std::string& name : rank.to_announce) {
      const Request& request = rank.in_flight.at(name);
      const auto id = rank.cache_enabled ? rank.cache.find(request) : std::nullopt;
      if (id) {
        announce.cached.push_back(*id);
      } else {
        announce.requests.push_back(request);
      }
    }
    rank.to_announce.clear();
    rank.outbox.push_back(decode_announce(encode(announce)));
  }

  void deliver_announce(Rank& rank, int which) {
    if (rank.outbox.empty()) return;
    negotiator_.announce(which, rank.outbox.front(), ++now_);
    rank.outbox.pop_front();
  }

  void emit() {
    if (!negotiator_.has_ready()) return;
    if (random_() % 40 == 0) cache_enabled_ = !cache_enabled_;
    Cycle cycle;
    cycle.number = ++cycles_;
    cycle.setting = Setting{};
    cycle.setting->cache_enabled = cache_enabled_;
    Ready ready = negotiator_.take_ready(cache_enabled_, cycle.number);
    FusionPlan plan = plan_fusion(std::move(ready.responses), 100);
    cycle.responses = std::move(plan.responses);
    cycle.buckets = std::move(plan.buckets);
    cycle.evicted = std::move(ready.evicted);
    for (Rank& rank : ranks_) rank.inbox.push_back(decode_cycle(encode(cycle)));
  }

  void deliver_cycle(Rank& rank, int which) {
    if (rank.inbox.empty()) return;
    Cycle cycle = std::move(rank.inbox.front());
    rank.inbox.pop_front();
    rank.cycles_seen = cycle.number;
    rank.cache_enabled = cycle.setting->cache_enabled;
    for (Response& response : cycle.responses) {
      if (response.compact) rank.cache.complete(response);
    }
    for (const uint32_t id : cycle.evicted) rank.cache.forget(id);
    for (const Response& response : cycle.responses) take(rank, which, response);
  }

  void take(Rank& rank, int which, const Response& response) {
    const Request& told = response.request;
    const auto mine = rank.in_flight.find(told.name);
    CHECK(mine != rank.in_flight.end());
    std::string line = told.name + (response.error.empty() ? "" : " error");
    if (response.error.empty()) {
      if (told.op == OpType::kAllgather) {
        CHECK_EQ(response.first_dims.size(), ranks_.size());
        CHECK_EQ(response.first_dims[static_cast<size_t>(which)], mine->second.shape[0]);
        for (const int64_t dim : response.first_dims) line += " " + std::to_string(dim);
      } else {
        CHECK(told == mine->second);
      }
      if (response.cache_id != kNoCacheId && !response.compact) {
        rank.cache.remember(mine->second, response);
      }
    }
    rank.log.push_back(line);
    rank.in_flight.erase(mine);
  }

  // Every rank catches up with the one that used each name most.
  void drain() {
    std::map<std::string, int> most;
    for (const Rank& rank : ranks_) {
      for (const auto& [name, uses] : rank.used) most[name] = std::max(most[name], uses);
    }
    for (bool behind = true; behind;) {
      behind = false;
      for (size_t i = 0; i < ranks_.size(); ++i) {
        for (const auto& [name, uses] : most) {
          if (ranks_[i].used[name] < uses) submit(ranks_[i], static_cast<int>(i), name);
          behind |= ranks_[i].used[name] < uses;
        }
        announce(ranks_[i]);
        while (!ranks_[i].outbox.empty()) deliver_announce(ranks_[i], static_cast<int>(i));
      }
      emit();
      for (size_t i = 0; i < ranks_.size(); ++i) {
        while (!ranks_[i].inbox.empty()) deliver_cycle(ranks_[i], static_cast<int>(i));
        behind |= !ranks_[i].in_flight.empty();
      }
    }
  }

  unsigned seed_;
  std::mt19937 random_;
  std::vector<Rank> ranks_;
  unsigned names_;
  Negotiator negotiator_;
  bool cache_enabled_ = true;
  uint64_t now_ = 0;
  uint64_t cycles_ = 0;
};

}  // namespace

TEST(all_ranks_understand_all_cycles_alike_in_any_interleaving) {
  for (unsigned seed = 0; seed < 2000; ++seed) Model(seed).run(400);
}
