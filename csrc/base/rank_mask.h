// A set of ranks, one bit each.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hvdtune {

class RankMask {
 public:
  RankMask() = default;
  explicit RankMask(std::span<const int> ranks) {
    for (const int rank : ranks) add(rank);
  }

  void add(int rank) {
    const size_t word = static_cast<size_t>(rank) / 64;
    if (words_.size() <= word) words_.resize(word + 1, 0);
    words_[word] |= uint64_t{1} << (rank % 64);
  }
  bool contains(int rank) const {
    const size_t word = static_cast<size_t>(rank) / 64;
    return word < words_.size() && (words_[word] >> (rank % 64) & 1) != 0;
  }
  RankMask& operator|=(const RankMask& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size(), 0);
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  RankMask& operator-=(const RankMask& other) {
    for (size_t i = 0; i < words_.size() && i < other.words_.size(); ++i) {
      words_[i] &= ~other.words_[i];
    }
    return *this;
  }
  bool covers(const RankMask& other) const {
    for (size_t i = 0; i < other.words_.size(); ++i) {
      if ((other.words_[i] & ~word(i)) != 0) return false;
    }
    return true;
  }
  bool meets(const RankMask& other) const {
    for (size_t i = 0; i < other.words_.size(); ++i) {
      if ((other.words_[i] & word(i)) != 0) return true;
    }
    return false;
  }
  bool empty() const {
    for (const uint64_t each : words_) {
      if (each != 0) return false;
    }
    return true;
  }
  int count() const {
    int bits = 0;
    for (const uint64_t each : words_) bits += std::popcount(each);
    return bits;
  }
  // Ascending.
  std::vector<int> ranks() const {
    std::vector<int> list;
    for (size_t i = 0; i < words_.size(); ++i) {
      for (uint64_t rest = words_[i]; rest != 0; rest &= rest - 1) {
        list.push_back(static_cast<int>(64 * i) + std::countr_zero(rest));
      }
    }
    return list;
  }
  bool operator==(const RankMask& other) const { return covers(other) && other.covers(*this); }

 private:
  uint64_t word(size_t i) const { return i < words_.size() ? words_[i] : 0; }

  std::vector<uint64_t> words_;
};

}  // namespace hvdtune
