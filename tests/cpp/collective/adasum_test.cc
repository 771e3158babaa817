#include "collective/adasum.h"

#include <cmath>

#include "check.h"
#include "collective/naive.h"
#include "collective/world.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector combined(const Vector& a, const Vector& b) {
  const double aa = dot(a, a);
  const double bb = dot(b, b);
  const double ab = dot(a, b);
  Vector out(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    out[i] = (aa == 0 ? a[i] : a[i] * (1 - ab / (2 * aa))) +
             (bb == 0 ? b[i] : b[i] * (1 - ab / (2 * bb)));
  }
  return out;
}

Vector plain_adasum(std::vector<Vector> vectors) {
  while (vectors.size() > 1) {
    std::vector<Vector> up;
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) {
      up.push_back(combined(vectors[i], vectors[i + 1]));
    }
    if (vectors.size() % 2 == 1) up.push_back(vectors.back());
    vectors = std::move(up);
  }
  return vectors[0];
}

template <typename T>
Vector values_of(const Buffer& buffer) {
  Vector out(buffer.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, buffer.data() + i * sizeof(T), sizeof value);
    out[i] = static_cast<double>(widened(value));
  }
  return out;
}

// Tensor t of rank r: random, apart from a few that are zero on some ranks or on all.
template <typename T>
Buffer tensor(int rank, size_t t, size_t count) {
  if (t == 1 && rank % 2 == 0) return Buffer(count * sizeof(T), 0);
  if (t == 2) return Buffer(count * sizeof(T), 0);
  return random_values<T>(count, static_cast<unsigned>(rank * 31) + static_cast<unsigned>(t));
}

// Checks against the plain definition; returns the bits, which all ranks share.
template <typename T>
std::vector<Buffer> check(World& world, DType dtype, double tolerance, std::vector<size_t> counts) {
  std::vector<std::vector<Buffer>> results(static_cast<size_t>(world.size()));
  world.each([&](Group& group, int rank) {
    std::vector<Buffer>& outputs = results[static_cast<size_t>(rank)];
    std::vector<Buffer> inputs;
    for (size_t t = 0; t < counts.size(); ++t) {
      inputs.push_back(tensor<T>(rank, t, counts[t]));
      outputs.emplace_back(inputs.back().size());
    }
    Payload payload;
    for (size_t t = 0; t < counts.size(); ++t) {
      payload.add(inputs[t].data(), outputs[t].data(), inputs[t].size());
    }
    adasum(group, dtype, 0.5, 2.0, payload, {});
  });
  for (size_t t = 0; t < counts.size(); ++t) {
    std::vector<Vector> vectors;
    for (const auto& host : world.hosts()) {
      for (const int rank : host) vectors.push_back(values_of<T>(tensor<T>(rank, t, counts[t])));
    }
    const Vector expected = plain_adasum(vectors);
    const Vector result = values_of<T>(results[0][t]);
    for (size_t i = 0; i < counts[t]; ++i) {
      CHECK(std::abs(result[i] - expected[i]) <= tolerance * (1 + std::abs(expected[i])));
    }
  }
  for (const auto& result : results) CHECK(result == results[0]);
  return results[0];
}

constexpr size_t kLong = 3 * 4096 + 17;

}  // namespace

TEST(any_number_of_ranks_gives_the_plain_definition_and_the_same_bits_on_all) {
  for (const int size : {1, 2, 3, 4, 5, 7}) {
    for (const int hosts : {1, 2}) {
      if (hosts > size) continue;
      World world(size, hosts, true);
      const std::vector<size_t> counts = {kLong, 5000, 100, 0, 1, 9000};
      check<float>(world, DType::kFloat32, 1e-4, counts);
      check<double>(world, DType::kFloat64, 1e-12, counts);
      check<Half>(world, DType::kFloat16, 2e-3, counts);
      check<Bfloat16>(world, DType::kBfloat16, 2e-2, counts);
    }
  }
}

TEST(a_tensor_has_the_same_bits_alone_and_in_a_bucket_and_over_any_transport) {
  World shared(4, 2, true);
  World tcp(4, 2, false);
  const auto alone = check<float>(shared, DType::kFloat32, 1e-4, {kLong});
  CHECK(check<float>(shared, DType::kFloat32, 1e-4, {kLong, 700, 40'000})[0] == alone[0]);
  CHECK(check<float>(tcp, DType::kFloat32, 1e-4, {kLong})[0] == alone[0]);
}

TEST(parallel_gradients_are_averaged_and_orthogonal_ones_added) {
  World world(2, 1, true);
  world.each([](Group& group, int rank) {
    const auto run = [&](std::vector<float> values) {
      auto* bytes = reinterpret_cast<uint8_t*>(values.data());
      Payload payload;
      payload.add(bytes, bytes, values.size() * sizeof(float));
      adasum(group, DType::kFloat32, 1.0, 1.0, payload, {});
      return values;
    };
    CHECK(run({3, 4}) == (std::vector<float>{3, 4}));
    CHECK(run(rank == 0 ? std::vector<float>{2, 0} : std::vector<float>{0, 5}) ==
          (std::vector<float>{2, 5}));
  });
}

TEST(integers_are_refused) {
  World world(1, 1, true);
  world.each([](Group& group, int) {
    CHECK_THROWS(ErrorCode::kUsage, adasum(group, DType::kInt32, 1.0, 1.0, {}, {}));
  });
}
