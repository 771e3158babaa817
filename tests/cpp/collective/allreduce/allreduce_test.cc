// Same bits, whatever the algorithm, the chunk size, the topology and the transport.
#include "collective/allreduce/allreduce.h"

#include "check.h"
#include "collective/allgather.h"
#include "collective/broadcast.h"
#include "collective/naive.h"
#include "collective/world.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

struct Shape {
  int size;
  int hosts;
  bool shared_memory;
};

constexpr Shape kShapes[] = {{1, 1, true}, {2, 1, true},  {3, 1, true}, {3, 1, false},
                             {4, 2, true}, {4, 2, false}, {5, 2, true}, {3, 3, true},
                             {6, 3, true}, {6, 2, true},  {6, 1, true}};

std::vector<Setting> settings() {
  std::vector<Setting> list;
  for (const bool hierarchical : {false, true}) {
    for (const int64_t chunk_bytes : {65'536, 100'001, 524'288, 4'194'304}) {
      Setting setting;
      setting.hierarchical_allreduce = hierarchical;
      setting.torus_allreduce = true;
      setting.chunk_bytes = chunk_bytes;
      list.push_back(setting);
    }
  }
  return list;
}

// What one rank gives to the bucket, cut into tensors of uneven size.
struct Bucket {
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  Payload payload;

  Bucket(const Buffer& whole, size_t element) {
    const size_t cuts[] = {3, 0, 30'001, 1, whole.size() / element};
    size_t begin = 0;
    for (const size_t cut : cuts) {
      const size_t bytes = std::min(cut * element, whole.size() - begin);
      const auto from = whole.begin() + static_cast<ptrdiff_t>(begin);
      inputs.emplace_back(from, from + static_cast<ptrdiff_t>(bytes));
      outputs.emplace_back(bytes);
      begin += bytes;
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      payload.add(inputs[i].data(), outputs[i].data(), inputs[i].size());
    }
  }

  Buffer result() const {
    Buffer whole;
    for (const Buffer& output : outputs) whole.insert(whole.end(), output.begin(), output.end());
    return whole;
  }
};

template <typename T>
void check_world(World& world, DType dtype, ReduceOp op, size_t usual_count) {
  const size_t count = elements(usual_count);
  const double prescale = std::is_integral_v<T> ? 1.0 : 0.5;
  const Reduction reduction{dtype, op, prescale, 1.0, world.size()};
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < world.size(); ++rank) {
    inputs.push_back(random_values<T>(count, static_cast<unsigned>(rank) + 1));
  }
  const Buffer expected = naive_reduction<T>(reduction, inputs, world.hosts());
  world.each([&](Group& group, int rank) {
    for (const Setting& setting : settings()) {
      Bucket bucket(inputs[static_cast<size_t>(rank)], sizeof(T));
      allreduce(group, reduction, bucket.payload, setting);
      CHECK(bucket.result() == expected);
    }
  });
}

}  // namespace

TEST(every_algorithm_gives_the_bits_of_the_plain_definition) {
  for (const Shape& shape : kShapes) {
    World world(shape.size, shape.hosts, shape.shared_memory);
    check_world<float>(world, DType::kFloat32, ReduceOp::kAverage, 280'003);
    check_world<float>(world, DType::kFloat32, ReduceOp::kSum, 5);
    check_world<Half>(world, DType::kFloat16, ReduceOp::kSum, 100'000);
    check_world<Bfloat16>(world, DType::kBfloat16, ReduceOp::kAverage, 40'001);
    check_world<double>(world, DType::kFloat64, ReduceOp::kMin, 20'000);
    check_world<uint8_t>(world, DType::kUint8, ReduceOp::kMax, 70'000);
  }
}

// Sizes on both sides of every boundary, so that the arena's halves are used in all orders.
TEST(operations_that_follow_each_other_do_not_mix) {
  for (const Shape& shape : kShapes) {
    World world(shape.size, shape.hosts, shape.shared_memory);
    const float sum = static_cast<float>(shape.size * (shape.size + 1)) / 2;
    world.each([&](Group& group, int rank) {
      std::mt19937 random(3);
      const Reduction reduction{DType::kFloat32, ReduceOp::kSum, 1.0, 1.0, group.size()};
      for (int i = 0; i < cases(40); ++i) {
        const size_t counts[] = {0, 1, 2047, 2048, 2049, 16'384, 16'385, 40'000, 100'000};
        const size_t count = counts[random() % std::size(counts)];
        Setting setting;
        setting.chunk_bytes = random() % 2 == 0 ? 65'536 : 131'072;
        setting.hierarchical_allreduce = random() % 2 == 0;
        const float base = static_cast<float>(i % 7 + 1);
        std::vector<float> values(count, base * static_cast<float>(rank + 1));
        auto* bytes = reinterpret_cast<uint8_t*>(values.data());
        Payload payload;
        payload.add(bytes, bytes, count * sizeof(float));
        allreduce(group, reduction, payload, setting);
        for (const float value : values) CHECK_EQ(value, base * sum);
      }
    });
  }
}

TEST(broadcast_and_allgather_move_any_size) {
  for (const Shape& shape : kShapes) {
    World world(shape.size, shape.hosts, shape.shared_memory);
    world.each([&](Group& group, int rank) {
      for (const size_t bytes : {0UL, 1UL, 1'000'003UL}) {
        const int root = group.size() - 1;
        const Buffer input(bytes, static_cast<uint8_t>(rank + 1));
        Buffer output(bytes);
        broadcast(group, root, input.data(), output.data(), bytes, {});
        CHECK(output == Buffer(bytes, static_cast<uint8_t>(root + 1)));
      }
      std::vector<size_t> blocks;
      Buffer expected;
      for (int other = 0; other < group.size(); ++other) {
        blocks.push_back(static_cast<size_t>((other * 300'007) % 500'000));
        expected.insert(expected.end(), blocks.back(), static_cast<uint8_t>(other));
      }
      const Buffer input(blocks[static_cast<size_t>(rank)], static_cast<uint8_t>(rank));
      Buffer output(expected.size());
      allgather(group, input.data(), output.data(), blocks, {});
      CHECK(output == expected);
    });
  }
}
