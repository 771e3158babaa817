// The contract over threads. With HVDTUNE_TEST_CASES=N, N times the usual number of cases.
#include "collective/contract.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

struct Layout {
  int size;
  int hosts;
  int cases;
};

constexpr Layout kLayouts[] = {{1, 1, 5}, {2, 1, 10}, {2, 2, 10}, {3, 1, 8},  {3, 2, 8},
                               {3, 3, 8}, {4, 1, 8},  {4, 2, 15}, {4, 4, 8},  {6, 2, 8},
                               {6, 3, 8}, {7, 3, 8},  {16, 1, 2}, {16, 4, 4}, {16, 3, 2}};

// The runtime refuses the others.
bool exists(const Reduction& reduction) {
  return reduction.dtype != DType::kBool || reduction.op != ReduceOp::kAverage;
}

class Cases {
 public:
  explicit Cases(unsigned seed) : random_(seed) {}

  Case draw(int ranks) {
    Case c;
    c.seed = random_() % 100'000;
    c.chunk_bytes = std::array<size_t, 3>{4096, 65536, 65536 * 2 + 64}[random_() % 3];
    c.reduction.dtype = static_cast<DType>(random_() % kReducedDTypeCount);
    c.reduction.op = static_cast<ReduceOp>(random_() % (kReduceOpCount - 1));  // but Adasum
    if (!exists(c.reduction)) c.reduction.op = ReduceOp::kSum;
    c.reduction.ranks = ranks;
    const bool scales = random_() % 3 == 0 && c.reduction.dtype != DType::kBool;
    if (scales) {
      c.reduction.prescale = random_() % 2 == 0 ? 0.5 : 3.0;
      c.reduction.postscale = random_() % 2 == 0 ? 1.0 : 0.25;
    }
    if (scales && c.reduction.op == ReduceOp::kProduct) c.reduction.prescale = 1.0;
    c.count = count(c.chunk_bytes / size_of(c.reduction.dtype));
    return c;
  }
  unsigned next() { return random_(); }

 private:
  // Nothing, a few, odd sizes, around a chunk and several chunks.
  size_t count(size_t chunk) {
    switch (random_() % 8) {
      case 0:
        return random_() % 3;
      case 1:
        return chunk - 1 + random_() % 3;
      case 2:
        return 3 * chunk;
      case 3:
        return 9 * chunk + random_() % chunk;
      default:
        return random_() % (chunk + chunk / 2);
    }
  }

  std::mt19937 random_;
};

void check_any(Set& set, Cases& cases) {
  const Case c = cases.draw(set.size());
  switch (cases.next() % 8) {
    case 0:
      return check_allgather(set, c);
    case 1:
      return check_alltoall(set, c);
    case 2:
      return check_broadcast(set, c);
    case 3:
    case 4:
      return check_reducescatter(set, c);
    default:
      return check_allreduce(set, c);
  }
}

std::vector<int> all(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

TEST(every_collective_keeps_its_promise_on_every_layout_and_transport) {
  for (const bool shared_memory : {true, false}) {
    for (const Layout& layout : kLayouts) {
      World world(layout.size, layout.hosts, shared_memory);
      Set set(world, all(layout.size));
      Cases cases(static_cast<unsigned>(layout.size * 10 + layout.hosts));
      for (int i = 0; i < testing::cases(layout.cases); ++i) check_any(set, cases);
    }
  }
}

TEST(every_type_and_operation_is_reduced_on_two_hosts_of_two_ranks) {
  for (const bool shared_memory : {true, false}) {
    World world(4, 2, shared_memory);
    Set set(world, all(4));
    for (int dtype = 0; dtype < kReducedDTypeCount; ++dtype) {
      for (int op = 0; op < kReduceOpCount - 1; ++op) {
        Case c;
        if (!exists({static_cast<DType>(dtype), static_cast<ReduceOp>(op)})) continue;
        c.reduction = {static_cast<DType>(dtype), static_cast<ReduceOp>(op), 1.0, 1.0, 4};
        c.count = 1001;
        c.chunk_bytes = 1024;
        check_allreduce(set, c);
      }
    }
  }
}

TEST(sets_that_overlap_and_sets_side_by_side_keep_it_too) {
  for (const bool shared_memory : {true, false}) {
    World world(6, 2, shared_memory);
    std::vector<std::unique_ptr<Set>> sets;
    for (const auto& ranks : std::vector<std::vector<int>>{
             {0, 1, 2, 3, 4, 5}, {0, 2, 4}, {1, 3, 5}, {0, 1, 2, 3}, {2, 5}, {3}, {1, 2, 4}}) {
      sets.push_back(std::make_unique<Set>(world, ranks));
    }
    Cases cases(7);
    for (int i = 0; i < testing::cases(20); ++i)
      check_any(*sets[cases.next() % sets.size()], cases);
    // even and odd ranks at the same time
    std::jthread beside([&] {
      Cases odd(8);
      for (int i = 0; i < testing::cases(10); ++i) check_any(*sets[2], odd);
    });
    Cases even(9);
    for (int i = 0; i < testing::cases(30); ++i) check_any(*sets[1], even);
  }
}
