#include "transport/control_tree.h"

#include <algorithm>

#include "check.h"

using namespace hvdtune;

TEST(few_ranks_of_one_host_form_a_star) {
  CHECK(control_parents({{0, 1, 2, 3}}, 16) == std::vector<int>({-1, 0, 0, 0}));
}

TEST(no_rank_has_more_than_twice_the_fanout_of_children) {
  for (const int fanout : {1, 2, 3, 8}) {
    std::vector<std::vector<int>> hosts(8);
    for (int rank = 0; rank < 128; ++rank) hosts[static_cast<size_t>(rank / 16)].push_back(rank);
    const std::vector<int> parents = control_parents(hosts, fanout);
    for (int rank = 0; rank < 128; ++rank) {
      CHECK(std::ranges::count(parents, rank) <= 2 * fanout);
      if (rank > 0) CHECK(parents[static_cast<size_t>(rank)] < rank);
    }
  }
}

TEST(only_the_first_rank_of_a_host_talks_to_another_host) {
  const std::vector<std::vector<int>> hosts = {{0, 2, 4}, {1, 3, 5}};
  const std::vector<int> parents = control_parents(hosts, 2);
  CHECK(parents == std::vector<int>({-1, 0, 0, 1, 0, 1}));
}

TEST(branches_hold_every_other_rank_once) {
  const std::vector<int> parents = {-1, 0, 0, 1, 1, 3};
  const auto branches = control_branches(parents, 0);
  CHECK(branches == std::vector<std::vector<int>>({{1, 3, 5, 4}, {2}}));
  CHECK(control_branches(parents, 5).empty());
}
