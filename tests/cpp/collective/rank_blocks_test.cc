// Collectives whose blocks differ in size from rank to rank.
#include <algorithm>

#include "check.h"
#include "collective/alltoall.h"
#include "collective/naive.h"
#include "collective/reducescatter.h"
#include "collective/world.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

struct Shape {
  int size;
  int hosts;
  bool shared_memory;
};

constexpr Shape kShapes[] = {{1, 1, true},  {2, 1, true}, {3, 1, false}, {4, 2, true},
                             {4, 2, false}, {5, 2, true}, {3, 3, true}};

// Bytes that rank `from` has for rank `to`; about a third of the blocks are empty.
size_t block_bytes(int from, int to) {
  const auto x = static_cast<size_t>(from * 7 + to * 13 + 1);
  return x % 3 == 0 ? 0 : x * 40'009 % 500'000;
}

uint8_t block_value(int from, int to) { return static_cast<uint8_t>(from * 16 + to + 1); }

}  // namespace

TEST(alltoall_moves_every_block_to_its_place) {
  for (const Shape& shape : kShapes) {
    World world(shape.size, shape.hosts, shape.shared_memory);
    world.each([&](Group& group, int rank) {
      Buffer input, expected;
      std::vector<size_t> send, recv;
      for (int other = 0; other < group.size(); ++other) {
        send.push_back(block_bytes(rank, other));
        recv.push_back(block_bytes(other, rank));
        input.insert(input.end(), send.back(), block_value(rank, other));
        expected.insert(expected.end(), recv.back(), block_value(other, rank));
      }
      AllBlocks all;
      for (int from = 0; from < group.size(); ++from) {
        for (int to = 0; to < group.size(); ++to) {
          all.total_bytes += block_bytes(from, to);
          all.longest_bytes = std::max(all.longest_bytes, block_bytes(from, to));
        }
      }
      Buffer output(expected.size());
      alltoall(group, input.data(), send, output.data(), recv, all, Setting{});
      CHECK(output == expected);
    });
  }
}

TEST(reducescatter_gives_each_rank_its_part_of_the_plain_definition) {
  for (const Shape& shape : kShapes) {
    World world(shape.size, shape.hosts, shape.shared_memory);
    std::vector<size_t> counts;
    size_t total = 0;
    for (int rank = 0; rank < shape.size; ++rank) {
      counts.push_back(rank % 3 == 1 ? 0 : static_cast<size_t>(rank + 1) * 30'001);
      total += counts.back();
    }
    std::vector<Buffer> inputs;
    for (int rank = 0; rank < shape.size; ++rank) {
      inputs.push_back(random_values<float>(total, static_cast<unsigned>(rank) + 1));
    }
    const Reduction reduction{DType::kFloat32, ReduceOp::kAverage, 0.5, 1.0, shape.size};
    const Buffer whole = naive_reduction<float>(reduction, inputs, world.hosts());
    world.each([&](Group& group, int rank) {
      const auto at = static_cast<size_t>(rank);
      size_t begin = 0;
      for (size_t i = 0; i < at; ++i) begin += counts[i] * sizeof(float);
      const auto from = whole.begin() + static_cast<ptrdiff_t>(begin);
      const Buffer expected(from, from + static_cast<ptrdiff_t>(counts[at] * sizeof(float)));
      for (const int64_t chunk_bytes : {65'536, 100'001, 4'194'304}) {
        Setting setting;
        setting.chunk_bytes = chunk_bytes;
        Buffer output(expected.size());
        reducescatter(group, reduction, inputs[at].data(), output.data(), counts, setting);
        CHECK(output == expected);
      }
    });
  }
}
