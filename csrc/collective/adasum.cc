#include "collective/adasum.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "collective/reduce/kernels.h"

namespace hvdtune {
namespace {

enum Area : size_t { kPacked, kReceived, kAccumulators, kProducts };

constexpr size_t kBlock = 4096;
constexpr size_t kLanes = 8;

struct Products {
  double aa = 0;
  double bb = 0;
  double ab = 0;
};

struct TensorBlock {
  size_t piece;
  size_t begin;  // elements of the payload
  size_t count;
};

// Blocks [begin, end), which are the elements [first, first + count).
struct Part {
  size_t begin = 0;
  size_t end = 0;
  size_t first = 0;
  size_t count = 0;
};

std::vector<TensorBlock> blocks_of(const Payload& payload, size_t element) {
  std::vector<TensorBlock> blocks;
  size_t begin = 0;
  for (size_t piece = 0; piece < payload.pieces().size(); ++piece) {
    const size_t end = begin + payload.pieces()[piece].bytes / element;
    while (begin < end) {
      const size_t count = std::min(kBlock, end - begin);
      blocks.push_back({piece, begin, count});
      begin += count;
    }
  }
  return blocks;
}

// Every block to the rank into whose n-th of the elements it begins.
std::vector<Part> parts_of(std::span<const TensorBlock> blocks, size_t total, size_t ranks) {
  const size_t each = (total + ranks - 1) / ranks;
  std::vector<Part> parts(ranks);
  size_t at = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    Part& part = parts[rank];
    part.begin = at;
    part.first = at < blocks.size() ? blocks[at].begin : total;
    while (at < blocks.size() && blocks[at].begin / each <= rank) part.count += blocks[at++].count;
    part.end = at;
  }
  return parts;
}

template <typename T>
Products products_of(const T* a, const T* b, size_t count) {
  std::array<double, kLanes> aa{}, bb{}, ab{};
  const auto add = [&](size_t lane, double x, double y) {
    aa[lane] += x * x;
    bb[lane] += y * y;
    ab[lane] += x * y;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(lane, a[i + lane], b[i + lane]);
  }
  for (size_t lane = 0; i + lane < count; ++lane) add(lane, a[i + lane], b[i + lane]);
  Products sum;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sum.aa += aa[lane];
    sum.bb += bb[lane];
    sum.ab += ab[lane];
  }
  return sum;
}

// a = a * wa + b * wb
template <typename T>
void combine(T* a, const T* b, size_t count, const Products& products) {
  const double wa = products.aa > 0 ? 1 - products.ab / (2 * products.aa) : 1;
  const double wb = products.bb > 0 ? 1 - products.ab / (2 * products.bb) : 1;
  for (size_t i = 0; i < count; ++i) {
    const double sum = static_cast<double>(a[i]) * wa + static_cast<double>(b[i]) * wb;
    a[i] = static_cast<T>(sum);
  }
}

template <typename T>  // of the accumulators
class AdasumRun {
 public:
  AdasumRun(Group& group, DType dtype, const Payload& payload)
      : group_(group),
        payload_(payload),
        kernels_(kernels_for(dtype, ReduceOp::kAdasum)),
        element_(size_of(dtype)),
        ranks_(static_cast<size_t>(group.size())),
        blocks_(blocks_of(payload, element_)),
        parts_(parts_of(blocks_, payload.bytes() / element_, ranks_)),
        mine_(part(group.rank())),
        packed_(group.scratch().take(kPacked, payload.bytes())) {}

  void run(double prescale, double postscale) {
    group_.observe(Phase::kPack, payload_.bytes(),
                   [&] { payload_.pack(0, payload_.bytes(), packed_); });
    gather_contributions(prescale);
    while (vectors_.size() > 1) level();
    uint8_t* result = packed_ + mine_.first * element_;
    kernels_.store(vectors_[0], result, mine_.count, 1, postscale);
    spread_result(result);
    group_.observe(Phase::kUnpack, payload_.bytes(),
                   [&] { payload_.unpack(0, payload_.bytes(), packed_); });
  }

 private:
  const Part& part(int rank) const { return parts_[static_cast<size_t>(rank)]; }

  void gather_contributions(double prescale) {
    const size_t bytes = mine_.count * element_;
    uint8_t* received = group_.scratch().take(kReceived, bytes * ranks_);
    std::vector<const uint8_t*> from;
    std::vector<Transfer> transfers;
    for (const int rank : group_.canonical_ranks()) {
      if (rank == group_.rank()) {
        from.push_back(packed_ + mine_.first * element_);
        continue;
      }
      from.push_back(received + bytes * static_cast<size_t>(rank));
      transfers.push_back({&group_.link(rank), packed_ + part(rank).first * element_,
                           part(rank).count * element_,
                           received + bytes * static_cast<size_t>(rank), bytes});
    }
    group_.exchange(transfers);
    auto* into = reinterpret_cast<T*>(
        group_.scratch().take(kAccumulators, mine_.count * sizeof(T) * ranks_));
    group_.observe(Phase::kReduce, bytes, [&] {
      for (const uint8_t* contribution : from) {
        kernels_.load(contribution, into, mine_.count, prescale);
        vectors_.push_back(into);
        into += mine_.count;
      }
    });
  }

  // One level of the tree: vectors_ becomes half as many.
  void level() {
    const size_t pairs = vectors_.size() / 2;
    const size_t count = pairs * blocks_.size();
    auto* products =
        reinterpret_cast<Products*>(group_.scratch().take(kProducts, count * sizeof(Products)));
    group_.observe(Phase::kReduce, pairs * mine_.count * sizeof(T),
                   [&] { measure(pairs, products + mine_.begin * pairs); });
    share_products(pairs, products);
    group_.observe(Phase::kReduce, pairs * mine_.count * sizeof(T),
                   [&] { combine_pairs(pairs, products); });
    std::vector<T*> up;
    for (size_t i = 0; i < vectors_.size(); i += 2) up.push_back(vectors_[i]);
    vectors_ = std::move(up);
  }

  // Products are stored block by block, within a block pair by pair.
  void measure(size_t pairs, Products* out) const {
    for (size_t i = mine_.begin; i < mine_.end; ++i) {
      const size_t at = blocks_[i].begin - mine_.first;
      for (size_t pair = 0; pair < pairs; ++pair) {
        *out++ =
            products_of(vectors_[2 * pair] + at, vectors_[2 * pair + 1] + at, blocks_[i].count);
      }
    }
  }

  void share_products(size_t pairs, Products* products) {
    const size_t each = pairs * sizeof(Products);
    std::vector<Transfer> transfers;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      transfers.push_back({&group_.link(rank), products + mine_.begin * pairs,
                           (mine_.end - mine_.begin) * each, products + part(rank).begin * pairs,
                           (part(rank).end - part(rank).begin) * each});
    }
    group_.exchange(transfers);
  }

  void combine_pairs(size_t pairs, const Products* products) {
    for (size_t i = 0; i < blocks_.size();) {
      size_t end = i;
      while (end < blocks_.size() && blocks_[end].piece == blocks_[i].piece) ++end;
      const size_t first = std::max(i, mine_.begin);
      const size_t last = std::min(end, mine_.end);
      for (size_t pair = 0; first < last && pair < pairs; ++pair) {
        Products sum;
        for (size_t block = i; block < end; ++block) {
          const Products& one = products[block * pairs + pair];
          sum.aa += one.aa;
          sum.bb += one.bb;
          sum.ab += one.ab;
        }
        const size_t at = blocks_[first].begin - mine_.first;
        const size_t count =
            blocks_[last - 1].begin + blocks_[last - 1].count - blocks_[first].begin;
        combine(vectors_[2 * pair] + at, vectors_[2 * pair + 1] + at, count, sum);
      }
      i = end;
    }
  }

  void spread_result(const uint8_t* result) {
    std::vector<Transfer> transfers;
    for (int rank = 0; rank < group_.size(); ++rank) {
      if (rank == group_.rank()) continue;
      transfers.push_back({&group_.link(rank), result, mine_.count * element_,
                           packed_ + part(rank).first * element_, part(rank).count * element_});
    }
    group_.exchange(transfers);
  }

  Group& group_;
  const Payload& payload_;
  const Kernels& kernels_;
  size_t element_;
  size_t ranks_;
  std::vector<TensorBlock> blocks_;
  std::vector<Part> parts_;
  Part mine_;
  uint8_t* packed_;
  std::vector<T*> vectors_;  // this rank's share of the vectors left to combine, in canonical order
};

}  // namespace

bool adasum_takes(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

void adasum(Group& group, DType dtype, double prescale, double postscale, const Payload& payload,
            const Setting&) {
  if (!adasum_takes(dtype)) {
    throw Error(ErrorCode::kUsage,
                "Adasum needs a floating-point dtype, not " + std::string(name_of(dtype)));
  }
  if (payload.bytes() == 0) return;
  if (dtype == DType::kFloat64) {
    AdasumRun<double>(group, dtype, payload).run(prescale, postscale);
  } else {
    AdasumRun<float>(group, dtype, payload).run(prescale, postscale);
  }
}

}  // namespace hvdtune
