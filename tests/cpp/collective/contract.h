// What every collective promises, checked against a plain definition in double: exactly for
// integers and data that is only moved, within rounding for floats, and bit for bit among all
// algorithms whose sums have the canonical order. contract_test.cc draws the cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <numeric>

#include "check.h"
#include "collective/allgather.h"
#include "collective/allreduce/allreduce.h"
#include "collective/alltoall.h"
#include "collective/broadcast.h"
#include "collective/group_shape.h"
#include "collective/naive.h"
#include "collective/reducescatter.h"
#include "collective/world.h"

namespace hvdtune::testing {

// A process set of a world, and the calls of its ranks.
class Set {
 public:
  Set(World& world, std::vector<int> ranks) : ranks_(std::move(ranks)) {
    for (const int rank : ranks_) groups_.push_back(world.make_group(rank, ranks_, observer_));
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  GroupShape place() { return shape_of(*groups_[0]); }
  void each(const std::function<void(Group&, size_t)>& body) {
    std::vector<std::jthread> threads;
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      threads.emplace_back([&, rank] { body(*groups_[rank], rank); });
    }
  }

 private:
  Unobserved observer_;
  std::vector<int> ranks_;
  std::vector<std::unique_ptr<Group>> groups_;
};

// The algorithms that a set can run, wherever it lives.
inline std::vector<Algorithm> algorithms(OpType op, const GroupShape& place) {
  using enum Algorithm;
  if (place.ranks == 1) return {kAlone};
  const bool several = place.hosts > 1;
  const bool crowded = place.ranks > place.hosts;
  std::vector<Algorithm> list;
  switch (op) {
    case OpType::kAllreduce:
      list = {kDirect, kDoubling, kChain, kRing, kHalvingDoubling, kTree};
      if (several && crowded && place.homogeneous) list.push_back(kTorus);
      if (several && place.homogeneous && (place.shared || !crowded)) list.push_back(kHierarchical);
      break;
    case OpType::kAllgather:
      list = {kDirect, kDoubling, kRing};
      if (several && crowded && place.homogeneous && place.shared) list.push_back(kHierarchical);
      break;
    case OpType::kBroadcast:
      list = {kTree, kChain};
      if (several && crowded && place.homogeneous && place.shared) list.push_back(kHierarchical);
      break;
    default:
      list = {kDirect};
  }
  if (!several && place.shared) list.push_back(kShared);
  return list;
}

// One element of every rank, reduced by the definition; floats with how far rounding may lead.
template <typename T>
class Definition {
 public:
  static constexpr bool kExact = std::is_integral_v<T>;

  explicit Definition(const Reduction& reduction) : reduction_(reduction) {}

  bool allows(const std::vector<Buffer>& inputs, size_t i, const Buffer& result, size_t at) const {
    const T got = value(result, at);
    if constexpr (kExact) {
      int64_t total = 0;
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        const int64_t one = scaled(value(inputs[rank], i), reduction_.prescale);
        total = rank == 0 ? one : fold(total, one);
      }
      if (reduction_.op == ReduceOp::kAverage) total /= reduction_.ranks;
      return got == static_cast<T>(scaled(total, reduction_.postscale));
    } else {
      double total = 0;
      double size = 0;  // of what was added up, or of the product
      for (size_t rank = 0; rank < inputs.size(); ++rank) {
        const double one = widened(value(inputs[rank], i)) * reduction_.prescale;
        total = rank == 0 ? one : folded(reduction_.op, total, one);
        size += std::abs(one);
      }
      if (reduction_.op == ReduceOp::kAverage) total /= reduction_.ranks;
      total *= reduction_.postscale;
      size = std::max(std::abs(total), size * std::abs(reduction_.postscale));
      const auto steps = static_cast<double>(inputs.size()) + 4;
      return std::abs(widened(got) - total) <=
             steps * sum_epsilon() * size + epsilon() * std::abs(total) + tiny();
    }
  }

 private:
  static T value(const Buffer& buffer, size_t i) {
    T value;
    std::memcpy(&value, buffer.data() + i * sizeof(T), sizeof value);
    return value;
  }
  bool is_bool() const { return reduction_.dtype == DType::kBool; }
  static int64_t scaled(int64_t value, double factor) {
    return factor == 1.0 ? value : static_cast<int64_t>(static_cast<double>(value) * factor);
  }
  int64_t fold(int64_t a, int64_t b) const {
    if (is_bool()) {
      const bool all = reduction_.op == ReduceOp::kMin || reduction_.op == ReduceOp::kProduct;
      return all ? a & b : a | b;
    }
    return folded(reduction_.op, a, b);
  }
  static double epsilon() {
    return std::is_same_v<T, Half>       ? 0x1p-10
           : std::is_same_v<T, Bfloat16> ? 0x1p-7
                                         : static_cast<double>(sum_epsilon());
  }
  static double sum_epsilon() {
    return std::is_same_v<T, double> ? std::numeric_limits<double>::epsilon()
                                     : std::numeric_limits<float>::epsilon();
  }
  static double tiny() { return std::is_same_v<T, Half> ? 0x1p-24 : 0; }

  Reduction reduction_;
};

// Values whose sums show their order, and whose products of 16 ranks are finite.
template <typename T>
Buffer contribution(const Reduction& reduction, size_t count, unsigned seed) {
  if (reduction.dtype == DType::kBool) {
    Buffer values(count);
    std::mt19937 random(seed);
    for (uint8_t& value : values) value = random() % 4 == 0 ? 1 : 0;
    return values;
  }
  if (reduction.op != ReduceOp::kProduct) return random_values<T>(count, seed);
  std::mt19937 random(seed);
  Buffer buffer(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    T value;
    if constexpr (std::is_integral_v<T>) {
      value = static_cast<T>(random() % 2 + 1);
    } else {
      value = rounded<T>(
          static_cast<decltype(widened(T{}))>(0.75 + static_cast<double>(random() % 500) / 1000));
    }
    std::memcpy(buffer.data() + i * sizeof(T), &value, sizeof value);
  }
  return buffer;
}

// Calls `body` with a value of the element's type.
template <typename Body>
void with_type(DType dtype, Body body) {
  switch (dtype) {
    case DType::kBool:
    case DType::kUint8:
      return body(uint8_t{});
    case DType::kInt8:
      return body(int8_t{});
    case DType::kInt16:
      return body(int16_t{});
    case DType::kUint16:
      return body(uint16_t{});
    case DType::kInt32:
      return body(int32_t{});
    case DType::kInt64:
      return body(int64_t{});
    case DType::kFloat16:
      return body(Half{});
    case DType::kBfloat16:
      return body(Bfloat16{});
    case DType::kFloat32:
      return body(float{});
    case DType::kFloat64:
      return body(double{});
    default:
      CHECK(is_reducible(dtype));
  }
}

struct Case {
  Reduction reduction;
  size_t count = 0;
  size_t chunk_bytes = 65536;
  unsigned seed = 0;
};

inline std::vector<Buffer> contributions(const Case& c, int ranks) {
  std::vector<Buffer> inputs;
  with_type(c.reduction.dtype, [&]<typename T>(T) {
    for (int rank = 0; rank < ranks; ++rank) {
      inputs.push_back(
          contribution<T>(c.reduction, c.count, c.seed * 100 + static_cast<unsigned>(rank)));
    }
  });
  return inputs;
}

[[noreturn]] inline void fail_case(const Case& c, const GroupShape& place, std::string_view what) {
  std::cerr << what << ": " << name_of(c.reduction.dtype) << " " << name_of(c.reduction.op) << ", "
            << c.count << " elements, chunk " << c.chunk_bytes << ", seed " << c.seed << ", "
            << place.ranks << " ranks on " << place.hosts << " hosts"
            << (place.shared ? ", shared memory" : "") << std::endl;
  fail(__FILE__, __LINE__, "the contract");
}

inline void check_reduction(const Case& c, const GroupShape& place,
                            const std::vector<Buffer>& inputs, size_t begin, const Buffer& result,
                            std::string_view what) {
  with_type(c.reduction.dtype, [&]<typename T>(T) {
    const Definition<T> definition(c.reduction);
    for (size_t i = 0; i < result.size() / sizeof(T); ++i) {
      if (!definition.allows(inputs, begin + i, result, i)) fail_case(c, place, what);
    }
  });
}

// Sizes that add up to `count`, one for each rank.
inline std::vector<size_t> cut(size_t count, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<size_t> parts;
  for (int rank = 1; rank < ranks; ++rank) {
    const size_t part = random() % 3 == 0 ? 0 : random() % (count + 1);
    parts.push_back(part);
    count -= part;
  }
  parts.push_back(count);
  return parts;
}

inline void check_allreduce(Set& set, const Case& c) {
  const GroupShape place = set.place();
  const std::vector<Buffer> inputs = contributions(c, set.size());
  Buffer canonical;
  for (const Algorithm algorithm : algorithms(OpType::kAllreduce, place)) {
    std::vector<Buffer> outputs = inputs;
    set.each([&](Group& group, size_t rank) {
      // two tensors, the first in place
      const size_t element = size_of(c.reduction.dtype);
      const size_t first = c.count / 3 * element;
      const Buffer second(inputs[rank].begin() + static_cast<ptrdiff_t>(first), inputs[rank].end());
      Payload payload;
      payload.add(outputs[rank].data(), outputs[rank].data(), first);
      payload.add(second.data(), outputs[rank].data() + first, second.size());
      allreduce_by(algorithm, group, c.reduction, payload, c.chunk_bytes);
    });
    for (const Buffer& output : outputs) {
      if (output != outputs[0]) fail_case(c, place, "ranks differ");
    }
    check_reduction(c, place, inputs, 0, outputs[0], name_of(algorithm));
    if (!is_canonical(algorithm)) continue;
    if (canonical.empty()) canonical = outputs[0];
    if (outputs[0] != canonical) fail_case(c, place, name_of(algorithm));
  }
}

inline void check_reducescatter(Set& set, const Case& c) {
  const GroupShape place = set.place();
  const size_t element = size_of(c.reduction.dtype);
  const std::vector<Buffer> inputs = contributions(c, set.size());
  const std::vector<size_t> counts = cut(c.count, set.size(), c.seed);
  std::vector<Buffer> whole = inputs;
  set.each([&](Group& group, size_t rank) {
    Payload payload;
    payload.add(inputs[rank].data(), whole[rank].data(), whole[rank].size());
    Setting setting;
    allreduce(group, c.reduction, payload, setting);
  });
  for (const Algorithm algorithm : algorithms(OpType::kReducescatter, place)) {
    std::vector<Buffer> outputs;
    for (const size_t count : counts) outputs.emplace_back(count * element);
    set.each([&](Group& group, size_t rank) {
      reducescatter_by(algorithm, group, c.reduction, inputs[rank].data(), outputs[rank].data(),
                       counts, c.chunk_bytes);
    });
    size_t begin = 0;
    for (size_t rank = 0; rank < outputs.size(); ++rank) {
      check_reduction(c, place, inputs, begin, outputs[rank], name_of(algorithm));
      const auto from = whole[0].begin() + static_cast<ptrdiff_t>(begin * element);
      if (!std::equal(outputs[rank].begin(), outputs[rank].end(), from)) {
        fail_case(c, place, "reducescatter is no part of allreduce");
      }
      begin += counts[rank];
    }
  }
}

// The bytes of the case's elements, in blocks of random sizes.
inline void check_allgather(Set& set, const Case& c) {
  const GroupShape place = set.place();
  const std::vector<size_t> sizes = cut(c.count, set.size(), c.seed);
  std::vector<Buffer> inputs;
  Buffer expected;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    inputs.push_back(random_values<uint8_t>(sizes[rank], static_cast<unsigned>(rank) + c.seed));
    for (uint8_t& value : inputs.back()) value = static_cast<uint8_t>(value * 16 + rank);
    expected.insert(expected.end(), inputs.back().begin(), inputs.back().end());
  }
  for (const Algorithm algorithm : algorithms(OpType::kAllgather, place)) {
    set.each([&](Group& group, size_t rank) {
      Buffer output(expected.size(), 0xff);
      allgather_by(algorithm, group, inputs[rank].data(), output.data(), sizes, c.chunk_bytes);
      if (output != expected) fail_case(c, place, name_of(algorithm));
    });
  }
}

inline void check_alltoall(Set& set, const Case& c) {
  const GroupShape place = set.place();
  std::vector<std::vector<size_t>> sizes;  // [from][to]
  std::vector<Buffer> inputs;
  const auto ranks = static_cast<size_t>(set.size());
  for (size_t rank = 0; rank < ranks; ++rank) {
    sizes.push_back(cut(c.count, set.size(), c.seed + static_cast<unsigned>(rank)));
    inputs.push_back(random_values<uint8_t>(c.count, static_cast<unsigned>(rank) + c.seed));
    for (uint8_t& value : inputs.back()) value = static_cast<uint8_t>(value * 16 + rank);
  }
  set.each([&](Group& group, size_t rank) {
    Buffer expected;
    std::vector<size_t> receive;
    for (size_t from = 0; from < ranks; ++from) {
      const auto begin =
          std::accumulate(sizes[from].begin(), sizes[from].begin() + static_cast<ptrdiff_t>(rank),
                          inputs[from].begin());
      receive.push_back(sizes[from][rank]);
      expected.insert(expected.end(), begin, begin + static_cast<ptrdiff_t>(receive.back()));
    }
    for (const Algorithm algorithm : algorithms(OpType::kAlltoall, place)) {
      Buffer output(expected.size(), 0xff);
      alltoall_by(algorithm, group, inputs[rank].data(), sizes[rank], output.data(), receive);
      if (output != expected) fail_case(c, place, name_of(algorithm));
    }
    if (place.hosts > 1 || !place.shared) return;
    size_t longest = 0;
    for (const std::vector<size_t>& row : sizes) {
      longest = std::max(longest, *std::ranges::max_element(row));
    }
    Buffer output(expected.size(), 0xff);
    const bool is_done = alltoall_slots(group, inputs[rank].data(), sizes[rank], output.data(),
                                        receive, longest, c.chunk_bytes);
    if (is_done && output != expected) fail_case(c, place, "slots");
  });
}

inline void check_broadcast(Set& set, const Case& c) {
  const GroupShape place = set.place();
  const int root = static_cast<int>(c.seed) % set.size();
  const Buffer input = random_values<uint8_t>(c.count, c.seed);
  for (const Algorithm algorithm : algorithms(OpType::kBroadcast, place)) {
    set.each([&](Group& group, size_t rank) {
      const bool in_place = c.seed % 2 == 0 && static_cast<int>(rank) == root;
      Buffer output = in_place ? input : Buffer(c.count, 0xff);
      broadcast_by(algorithm, group, root, in_place ? output.data() : input.data(), output.data(),
                   c.count, c.chunk_bytes);
      if (output != input) fail_case(c, place, name_of(algorithm));
    });
  }
}

}  // namespace hvdtune::testing
