// Process sets: several groups of one rank that share its mesh.
#include "collective/group.h"

#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "collective/allreduce/allreduce.h"
#include "collective/world.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// Holds this rank up after some phases, so that the others are ahead of it.
class Slow final : public Observer {
 public:
  explicit Slow(unsigned seed) : random_(seed) {}
  void phase(Phase, uint64_t, uint64_t, size_t, int) override {
    if (random_() % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(random_() % 600));
    }
  }

 private:
  std::mt19937 random_;
};

struct Step {
  size_t set;
  size_t count;
  Setting setting;
};

// The same on every rank, as negotiation makes it.
std::vector<Step> random_steps(size_t sets, size_t length, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Step> steps;
  for (size_t i = 0; i < length; ++i) {
    constexpr size_t kCounts[] = {1, 2, 700, 2048, 2049, 16'384, 30'000, 100'003};
    Step step{random() % sets, kCounts[random() % std::size(kCounts)], {}};
    step.setting.chunk_bytes = 65'536;
    step.setting.hierarchical_allreduce = random() % 2 == 0;
    steps.push_back(step);
  }
  return steps;
}

void run_steps(World& world, const std::vector<std::vector<int>>& sets,
               const std::vector<Step>& steps, int rank) {
  Slow observer(static_cast<unsigned>(rank) + 1);
  std::vector<std::unique_ptr<Group>> groups;
  for (const std::vector<int>& set : sets) {
    const bool member = std::ranges::count(set, rank) > 0;
    groups.push_back(member ? world.make_group(rank, set, observer) : nullptr);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<int>& set = sets[steps[i].set];
    if (!groups[steps[i].set]) continue;
    int sum = 0;
    for (const int member : set) sum += member + 1;
    const auto turn = static_cast<float>(i % 100 + 1);
    std::vector<float> values(steps[i].count, turn * static_cast<float>(rank + 1));
    auto* bytes = reinterpret_cast<uint8_t*>(values.data());
    Payload payload;
    payload.add(bytes, bytes, values.size() * sizeof(float));
    const Reduction reduction{DType::kFloat32, ReduceOp::kSum, 1.0, 1.0,
                              static_cast<int>(set.size())};
    allreduce(*groups[steps[i].set], reduction, payload, steps[i].setting);
    for (const float value : values) CHECK_EQ(value, turn * static_cast<float>(sum));
  }
}

}  // namespace

TEST(overlapping_and_disjoint_sets_do_not_mix) {
  const std::vector<std::vector<int>> sets = {{0, 1, 2, 3}, {0, 1}, {2, 3}, {1, 2},   {0, 3},
                                              {0, 1, 3},    {2},    {3, 1}, {1, 2, 3}};
  for (const int hosts : {1, 2}) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      World world(4, hosts, true);
      const std::vector<Step> steps = random_steps(sets.size(), 250, seed);
      world.each([&](Group&, int rank) { run_steps(world, sets, steps, rank); });
    }
  }
}

TEST(a_group_counts_within_its_set) {
  World world(6, 2, true);  // hosts {0, 2, 4} and {1, 3, 5}
  Unobserved observer;
  const std::vector<int> set = {1, 2, 4, 5};
  const std::unique_ptr<Group> group = world.make_group(4, set, observer);
  CHECK_EQ(group->rank(), 2);
  CHECK_EQ(group->size(), 4);
  CHECK((group->topology().hosts == std::vector<std::vector<int>>{{0, 3}, {1, 2}}));
  CHECK_EQ(group->topology().local_rank, 1);
  CHECK_EQ(group->topology().cross_rank, 1);
  CHECK((std::ranges::equal(group->canonical_ranks(), std::vector{0, 3, 1, 2})));
  CHECK_EQ(group->link(3).peer(), 5);
  CHECK(group->homogeneous());
  CHECK_EQ(group->arena()->local_size(), 2);
  CHECK_EQ(group->arena()->local_rank(), 1);
}

TEST(a_rank_alone_on_its_host_has_no_arena) {
  World world(4, 2, true);
  Unobserved observer;
  const std::unique_ptr<Group> group = world.make_group(1, {0, 1, 2}, observer);
  CHECK(group->arena() == nullptr);
  CHECK(!group->homogeneous());
}
