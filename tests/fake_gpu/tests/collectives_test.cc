// Data arrives where it belongs: every collective, type and operation.
#include <cmath>

#include "ranks.h"

using namespace fake_gpu_tests;

namespace {

// Numbers that every type can hold: in a row of `rank`, at place i.
int number(int rank, size_t i) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % 4);
}

// The bytes of a small whole number in each type.
std::vector<uint8_t> encoded(int dtype, const std::vector<int>& numbers) {
  std::vector<uint8_t> bytes;
  const auto add = [&](auto value) {
    const auto* first = reinterpret_cast<const uint8_t*>(&value);
    bytes.insert(bytes.end(), first, first + sizeof value);
  };
  // 0, 1, 2, ... as floats of one byte: exponents of e4m3 begin at 0x38 with 1, of e5m2 at 0x3c.
  const auto small_float = [](int value, int mantissa_bits, int bias) -> uint32_t {
    if (value == 0) return 0;
    const int exponent = std::ilogb(value);
    const int mantissa = (value << mantissa_bits >> exponent) - (1 << mantissa_bits);
    return static_cast<uint32_t>((exponent + bias) << mantissa_bits | mantissa);
  };
  for (const int value : numbers) {
    switch (dtype) {
      case ncclInt8:
        add(static_cast<int8_t>(value));
        break;
      case ncclUint8:
        add(static_cast<uint8_t>(value));
        break;
      case ncclInt32:
        add(static_cast<int32_t>(value));
        break;
      case ncclUint32:
        add(static_cast<uint32_t>(value));
        break;
      case ncclInt64:
        add(static_cast<int64_t>(value));
        break;
      case ncclUint64:
        add(static_cast<uint64_t>(value));
        break;
      case ncclFloat16:
        add(static_cast<uint16_t>(small_float(value, 10, 15)));
        break;
      case ncclFloat32:
        add(static_cast<float>(value));
        break;
      case ncclFloat64:
        add(static_cast<double>(value));
        break;
      case ncclBfloat16:
        add(static_cast<uint16_t>(small_float(value, 7, 127)));
        break;
      case ncclFloat8e4m3:
        add(static_cast<uint8_t>(small_float(value, 3, 7)));
        break;
      default:
        add(static_cast<uint8_t>(small_float(value, 2, 15)));
        break;
    }
  }
  return bytes;
}

std::vector<int> row(int rank, size_t count, size_t first = 0) {
  std::vector<int> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = number(rank, first + i);
  return numbers;
}

int combined(int op, int ranks, size_t i) {
  int total = number(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int next = number(rank, i);
    if (op == ncclProd) total *= next;
    if (op == ncclMax) total = std::max(total, next);
    if (op == ncclMin) total = std::min(total, next);
    if (op == ncclSum || op == ncclAvg) total += next;
  }
  return op == ncclAvg ? total / ranks : total;
}

}  // namespace

TEST(every_type_and_operation_is_reduced) {
  constexpr int kRanks = 2;
  constexpr size_t kCount = 1500;
  const ncclUniqueId id = new_id();
  run_ranks(kRanks, [&](int rank) {
    const CUstream stream = new_stream();
    const ncclComm_t comm = joined(id, kRanks, rank);
    for (int dtype = ncclInt8; dtype <= ncclFloat8e5m2; ++dtype) {
      for (int op = ncclSum; op <= ncclMin; ++op) {
        const auto memory = on_device(encoded(dtype, row(rank, kCount)), stream);
        ok(settled(comm, ncclAllReduce(pointer(memory), pointer(memory), kCount,
                                       static_cast<ncclDataType_t>(dtype), op, comm, stream)));
        std::vector<int> expected(kCount);
        for (size_t i = 0; i < kCount; ++i) expected[i] = combined(op, kRanks, i);
        const auto bytes = encoded(dtype, expected);
        // Means of floats may end in a half, which `expected` has not.
        const bool exact = op != ncclAvg || dtype < ncclFloat16;
        CHECK(!exact || from_device<uint8_t>(memory, bytes.size(), stream) == bytes);
        ok(cuStreamSynchronize(stream));
        ok(cuMemFree_v2(memory));
      }
    }
    leave(comm);
    ok(cuStreamDestroy_v2(stream));
  });
  no_violations();
}

TEST(large_tensors_travel_in_chunks_and_scaled) {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 50'000;
  const ncclUniqueId id = new_id();
  run_ranks(kRanks, [&](int rank) {
    Member member(id, kRanks, rank, kCount);
    float half = 0.5f;
    ncclRedOp_t op = 0;
    ok(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat32, ncclScalarHostImmediate, member.comm));
    ok(settled(member.comm, ncclAllReduce(pointer(member.memory), pointer(member.memory), kCount,
                                          ncclFloat32, op, member.comm, member.stream)));
    CHECK(from_device<float>(member.memory, kCount, member.stream) ==
          std::vector<float>(kCount, 1.5f));
    ok(ncclRedOpDestroy(op, member.comm));
    ok(settled(member.comm, ncclAllReduce(pointer(member.memory), pointer(member.memory), kCount,
                                          ncclFloat32, ncclAvg, member.comm, member.stream)));
    const float mean = from_device<float>(member.memory, kCount, member.stream)[kCount - 1];
    CHECK(std::fabs(mean - 1.5f) < 1e-5f);
    leave(member.comm);
  });
  no_violations();
}

TEST(slices_are_gathered_scattered_and_broadcast) {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 20'000;
  const ncclUniqueId id = new_id();
  run_ranks(kRanks, [&](int rank) {
    const CUstream stream = new_stream();
    const ncclComm_t comm = joined(id, kRanks, rank);
    const auto mine = on_device(row(rank, kCount), stream);
    const auto all = on_device(std::vector<int>(kRanks * kCount), stream);
    ok(settled(comm, ncclAllGather(pointer(mine), pointer(all), kCount, ncclInt32, comm, stream)));
    std::vector<int> rows;
    for (int other = 0; other < kRanks; ++other) {
      const auto next = row(other, kCount);
      rows.insert(rows.end(), next.begin(), next.end());
    }
    CHECK(from_device<int>(all, rows.size(), stream) == rows);
    ok(settled(comm, ncclReduceScatter(pointer(all), pointer(mine), kCount, ncclInt32, ncclSum,
                                       comm, stream)));
    auto tripled = row(rank, kCount);
    for (auto& value : tripled) value *= kRanks;
    CHECK(from_device<int>(mine, kCount, stream) == tripled);
    ok(settled(comm,
               ncclBroadcast(pointer(mine), pointer(mine), kCount, ncclInt32, 2, comm, stream)));
    auto last = row(2, kCount);
    for (auto& value : last) value *= kRanks;
    CHECK(from_device<int>(mine, kCount, stream) == last);
    leave(comm);
  });
  no_violations();
}

TEST(everybody_sends_to_everybody_in_one_group) {
  constexpr int kRanks = 3;
  constexpr size_t kCount = 30'000;  // several chunks
  const ncclUniqueId id = new_id();
  run_ranks(kRanks, [&](int rank) {
    const CUstream stream = new_stream();
    const ncclComm_t comm = joined(id, kRanks, rank);
    std::vector<int> sent;
    for (int to = 0; to < kRanks; ++to) sent.insert(sent.end(), kCount, 10 * rank + to);
    const auto from = on_device(sent, stream);
    const auto to = on_device(std::vector<int>(kRanks * kCount), stream);
    ok(ncclGroupStart());
    for (int peer = 0; peer < kRanks; ++peer) {
      const size_t place = static_cast<size_t>(peer) * kCount * sizeof(int);
      ok(ncclSend(pointer(from + place), kCount, ncclInt32, peer, comm, stream));
      ok(ncclRecv(pointer(to + place), kCount, ncclInt32, peer, comm, stream));
    }
    ok(settled(comm, ncclGroupEnd()));
    std::vector<int> expected;
    for (int peer = 0; peer < kRanks; ++peer)
      expected.insert(expected.end(), kCount, 10 * peer + rank);
    CHECK(from_device<int>(to, expected.size(), stream) == expected);
    leave(comm);
  });
  no_violations();
}

TEST(a_communicator_is_split) {
  constexpr int kRanks = 3;
  const ncclUniqueId id = new_id();
  run_ranks(kRanks, [&](int rank) {
    Member member(id, kRanks, rank);
    const int color = rank == 1 ? NCCL_SPLIT_NOCOLOR : 4;
    ncclComm_t child = nullptr;
    ncclConfig_t config = configuration();
    // Ranks 0 and 2, in the opposite order.
    const ncclResult_t result = ncclCommSplit(member.comm, color, -rank, &child, &config);
    if (rank == 1) {
      ok(settled(member.comm, result));
      CHECK(child == nullptr);
    } else {
      ok(settled(child, result));
      int place = -1;
      ok(ncclCommUserRank(child, &place));
      CHECK_EQ(place, rank == 2 ? 0 : 1);
      ok(settled(child, ncclAllReduce(pointer(member.memory), pointer(member.memory), member.count,
                                      ncclFloat32, ncclSum, child, member.stream)));
      CHECK_EQ(from_device<float>(member.memory, member.count, member.stream)[999], 2.0f);
      leave(child);
    }
    leave(member.comm);
  });
  no_violations();
}
