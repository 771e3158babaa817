#include "collective/reduce/reduce.h"

#include "check.h"
#include "collective/naive.h"
#include "collective/partition.h"
#include "collective/payload.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

const std::vector<std::vector<int>> kHosts[] = {
    {{0}}, {{0, 1}}, {{0, 1, 2}}, {{0, 1}, {2, 3}}, {{0}, {1}, {2}}, {{0, 1, 2}, {3}, {4, 5}}};

// The result goes to several places, of which the first two are those of inputs.
void check_also(const Reduction& reduction, std::vector<Buffer> inputs, std::span<const int> sizes,
                const Buffer& expected) {
  std::vector<const uint8_t*> pointers;
  for (const Buffer& input : inputs) pointers.push_back(input.data());
  const size_t peers = std::min<size_t>(2, inputs.size() - 1);
  std::vector<uint8_t*> also;
  for (size_t i = 1; i <= peers; ++i) also.push_back(inputs[i].data());
  const size_t count = expected.size() / size_of(reduction.dtype);
  reduce_all(reduction, pointers, sizes, inputs[0].data(), count, also);
  for (size_t i = 0; i <= peers; ++i) CHECK(inputs[i] == expected);
}

template <typename T>
void check_against_naive(DType dtype) {
  for (const auto& hosts : kHosts) {
    std::vector<int> sizes;
    for (const auto& host : hosts) sizes.push_back(static_cast<int>(host.size()));
    const int ranks = hosts.back().back() + 1;
    for (int o = 0; o < kReduceOpCount; ++o) {
      for (const size_t count : {1UL, 17UL, 1024UL, 3001UL}) {
        const Reduction reduction{dtype, static_cast<ReduceOp>(o), 1.0, 1.0, ranks};
        std::vector<Buffer> inputs;
        std::vector<const uint8_t*> pointers;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(random_values<T>(count, static_cast<unsigned>(rank * 100 + o)));
        }
        for (const Buffer& input : inputs) pointers.push_back(input.data());
        const Buffer expected = naive_reduction<T>(reduction, inputs, hosts);
        Buffer whole(expected.size());
        reduce_all(reduction, pointers, sizes, whole.data(), count);
        CHECK(whole == expected);
        check_also(reduction, inputs, sizes, expected);

        // In two stages, as across hosts.
        std::vector<Buffer> partials;
        std::vector<uint8_t*> partial_pointers;
        size_t first = 0;
        for (const int size : sizes) {
          partials.emplace_back(count * accumulator_bytes(reduction));
          reduce_host(reduction, std::span(pointers).subspan(first, static_cast<size_t>(size)),
                      partials.back().data(), count);
          first += static_cast<size_t>(size);
        }
        for (Buffer& partial : partials) partial_pointers.push_back(partial.data());
        Buffer staged(expected.size());
        reduce_partials(reduction, partial_pointers, staged.data(), count);
        CHECK(staged == expected);
      }
    }
  }
}

}  // namespace

TEST(both_ways_of_reducing_equal_the_plain_definition) {
  check_against_naive<float>(DType::kFloat32);
  check_against_naive<double>(DType::kFloat64);
  check_against_naive<Half>(DType::kFloat16);
  check_against_naive<Bfloat16>(DType::kBfloat16);
  check_against_naive<int8_t>(DType::kInt8);
  check_against_naive<uint8_t>(DType::kUint8);
  check_against_naive<int16_t>(DType::kInt16);
  check_against_naive<uint16_t>(DType::kUint16);
  check_against_naive<int32_t>(DType::kInt32);
  check_against_naive<int64_t>(DType::kInt64);
}

TEST(scaling_happens_before_and_after) {
  const std::vector<std::vector<int>> hosts = {{0, 1}, {2}};
  const std::vector<int> sizes = {2, 1};
  const Reduction reduction{DType::kFloat32, ReduceOp::kAverage, 0.3, 7.0, 3};
  std::vector<Buffer> inputs;
  std::vector<const uint8_t*> pointers;
  for (unsigned rank = 0; rank < 3; ++rank) inputs.push_back(random_values<float>(100, rank));
  for (const Buffer& input : inputs) pointers.push_back(input.data());
  Buffer got(400);
  reduce_all(reduction, pointers, sizes, got.data(), 100);
  CHECK(got == naive_reduction<float>(reduction, inputs, hosts));
}

TEST(bool_means_any_and_all) {
  const Buffer inputs[] = {{0, 0, 1, 1}, {0, 1, 0, 1}};
  const std::vector<const uint8_t*> pointers = {inputs[0].data(), inputs[1].data()};
  const int two = 2;
  const auto reduced = [&](ReduceOp op) {
    Buffer out(4);
    reduce_all({DType::kBool, op, 1.0, 1.0, 2}, pointers, {&two, 1}, out.data(), 4);
    return out;
  };
  CHECK(reduced(ReduceOp::kSum) == Buffer({0, 1, 1, 1}));
  CHECK(reduced(ReduceOp::kMax) == Buffer({0, 1, 1, 1}));
  CHECK(reduced(ReduceOp::kProduct) == Buffer({0, 0, 0, 1}));
  CHECK(reduced(ReduceOp::kMin) == Buffer({0, 0, 0, 1}));
}

TEST(integers_wrap_around) {
  const Buffer one = {200};
  const std::vector<const uint8_t*> pointers = {one.data(), one.data()};
  const int two = 2;
  Buffer out(1);
  reduce_all({DType::kUint8, ReduceOp::kSum, 1.0, 1.0, 2}, pointers, {&two, 1}, out.data(), 1);
  CHECK_EQ(out[0], 144);
}

TEST(shares_cover_a_chunk_without_overlap) {
  for (const size_t count : {0UL, 1UL, 15UL, 16UL, 17UL, 100UL, 4097UL}) {
    for (int parts = 1; parts <= 9; ++parts) {
      size_t next = 0;
      for (int part = 0; part < parts; ++part) {
        const ElementRange share = part_of(count, parts, part, 4);
        CHECK(share.begin == next || share.count == 0);
        CHECK(share.begin % 16 == 0 || share.count == 0);
        next += share.count;
      }
      CHECK_EQ(next, count);
    }
  }
}

TEST(a_payload_is_one_run_of_bytes) {
  const Buffer inputs[] = {{1, 2, 3}, {}, {4}, {5, 6, 7, 8}};
  Buffer outputs[] = {Buffer(3), {}, Buffer(1), Buffer(4)};
  Payload payload;
  for (size_t i = 0; i < 4; ++i) {
    payload.add(inputs[i].data(), outputs[i].data(), inputs[i].size());
  }
  CHECK_EQ(payload.bytes(), 8U);
  for (size_t begin = 0; begin <= 8; ++begin) {
    for (size_t end = begin; end <= 8; ++end) {
      Buffer part(end - begin);
      payload.pack(begin, end - begin, part.data());
      for (size_t i = 0; i < part.size(); ++i) CHECK_EQ(part[i], begin + i + 1);
      payload.unpack(begin, end - begin, part.data());
    }
  }
  for (size_t i = 0; i < 4; ++i) CHECK(outputs[i] == inputs[i]);
}
