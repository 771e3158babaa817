// Which ranks belong to which process set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "wire/message.h"

namespace hvdtune {

// The same on all ranks after the same cycle. Not thread-safe.
class ProcessSets {
 public:
  explicit ProcessSets(int size) : sets_{{kWorldSet, std::vector<int>(static_cast<size_t>(size))}} {
    std::iota(sets_[kWorldSet].begin(), sets_[kWorldSet].end(), 0);
  }

  // The ranks of a set, ascending; null when there is none of that number.
  const std::vector<int>* find(uint32_t set) const {
    const auto found = sets_.find(set);
    return found == sets_.end() ? nullptr : &found->second;
  }
  bool includes(uint32_t set, int rank) const {
    const std::vector<int>* ranks = find(set);
    return ranks != nullptr && std::binary_search(ranks->begin(), ranks->end(), rank);
  }
  void add(uint32_t set, std::vector<int> ranks) { sets_.insert_or_assign(set, std::move(ranks)); }
  void remove(uint32_t set) { sets_.erase(set); }
  const std::map<uint32_t, std::vector<int>>& all() const { return sets_; }

 private:
  std::map<uint32_t, std::vector<int>> sets_;
};

}  // namespace hvdtune
