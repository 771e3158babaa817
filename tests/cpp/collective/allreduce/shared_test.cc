// Every way through a host's memory gives the bits of the plain definition.
#include "collective/allreduce/shared.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <numeric>
#include <optional>
#include <string>

#include "check.h"
#include "collective/naive.h"
#include "collective/world.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

constexpr size_t kChunkBytes = 65'536;
struct Case {
  SharedLimits limits;
  size_t chunk_bytes = kChunkBytes;
  std::optional<SharedWay> way = {};  // that the ranks have agreed on
};
// All whole; all packed where it fits, also in small pieces; all copied, also in small pieces; all
// in chunks; and as the ranks have agreed, against their limits.
constexpr Case kCases[] = {
    {{.whole_bytes = kNoLimit}},
    {{.arena_bytes = kNoLimit}, kNoLimit},
    {{}},
    {{.piece_bytes = 4096}},
    {{.arena_bytes = kNoLimit}},
    {{.arena_bytes = kNoLimit, .piece_bytes = 4096}, kNoLimit},
    {{.piece_bytes = 4096}, kChunkBytes, SharedWay::kArena},
    {{.arena_bytes = kNoLimit}, kNoLimit, SharedWay::kPeerCopies},
};

// Of all sizes.
SharedWays::Agreement agreement_on(std::optional<SharedWay> way) {
  return way ? (static_cast<uint64_t>(*way) + 1) * (~uint64_t{0} / 3) : 0;
}

// Where a rank's tensors lie, and how they are cut.
struct Layout {
  bool in_pool;
  bool in_place;
  std::vector<size_t> cuts;  // elements of each tensor; the last takes the rest
};

class SharedBucket {
 public:
  SharedBucket(const Buffer& whole, size_t element, const Layout& layout, Pool& pool) {
    size_t begin = 0;
    for (size_t i = 0; i <= layout.cuts.size(); ++i) {
      const size_t rest = whole.size() - begin;
      const size_t bytes =
          i == layout.cuts.size() ? rest : std::min(layout.cuts[i] * element, rest);
      uint8_t* input = memory(bytes, layout.in_pool, pool);
      uint8_t* output = layout.in_place ? input : memory(bytes, layout.in_pool, pool);
      std::copy_n(whole.begin() + static_cast<ptrdiff_t>(begin), bytes, input);
      payload.add(input, output, bytes);
      outputs_.emplace_back(output, bytes);
      begin += bytes;
    }
  }

  Buffer result() const {
    Buffer whole;
    for (const auto& output : outputs_) whole.insert(whole.end(), output.begin(), output.end());
    return whole;
  }

  Payload payload;

 private:
  uint8_t* memory(size_t bytes, bool in_pool, Pool& pool) {
    if (in_pool) return blocks_.emplace_back(pool.allocate(bytes))->data();
    return buffers_.emplace_back(std::make_unique<Buffer>(bytes))->data();
  }

  std::vector<std::unique_ptr<Pool::Allocation>> blocks_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::span<const uint8_t>> outputs_;
};

// What `rank` has in the given round: alike on some, different on others.
Layout layout_of(int round, int rank) {
  const std::vector<std::vector<size_t>> cuts = {
      {}, {1, 0, 7, 30'000}, {std::vector<size_t>(200, 61)}};
  switch (round) {
    case 0:
      return {false, true, cuts[0]};
    case 1:
      return {true, true, cuts[0]};
    case 2:
      return {rank % 2 == 0, false, cuts[1]};
    default:
      return {rank % 2 == 1, rank < 2, cuts[static_cast<size_t>(rank % 3)]};
  }
}

template <typename T>
void check_layouts(World& world, DType dtype, ReduceOp op, size_t usual_count) {
  const size_t count = elements(usual_count);
  const Reduction reduction{dtype, op, std::is_integral_v<T> ? 1.0 : 0.5, 1.0, world.size()};
  std::vector<Buffer> inputs;
  for (int rank = 0; rank < world.size(); ++rank) {
    inputs.push_back(random_values<T>(count, static_cast<unsigned>(rank) + 1));
  }
  const Buffer expected = naive_reduction<T>(reduction, inputs, world.hosts());
  world.each([&](Group& group, int rank) {
    for (const Case& example : kCases) {
      for (int round = 0; round < 4; ++round) {
        SharedBucket bucket(inputs[static_cast<size_t>(rank)], sizeof(T), layout_of(round, rank),
                            world.pool(rank));
        group.arena()->ways().agree(agreement_on(example.way));
        allreduce_shared(group, reduction, bucket.payload, example.chunk_bytes, example.limits);
        CHECK(bucket.result() == expected);
      }
    }
  });
}

void check_all() {
  for (const int size : {2, 3, 4}) {
    World world(size, 1, true);
    check_layouts<float>(world, DType::kFloat32, ReduceOp::kAverage, 400'003);
    check_layouts<float>(world, DType::kFloat32, ReduceOp::kSum, 1);
    check_layouts<Half>(world, DType::kFloat16, ReduceOp::kSum, 100'001);
    check_layouts<Bfloat16>(world, DType::kBfloat16, ReduceOp::kAverage, 65'537);
    check_layouts<double>(world, DType::kFloat64, ReduceOp::kMin, 50'000);
    check_layouts<uint8_t>(world, DType::kUint8, ReduceOp::kMax, 70'001);
  }
}

// As a container's default profile may.
void forbid_process_vm() {
  std::array<sock_filter, 5> program = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

}  // namespace

TEST(every_path_gives_the_bits_of_the_plain_definition) { check_all(); }

TEST(payloads_too_scattered_to_be_shown_go_through_the_arena) {
  World world(2, 1, true);
  world.each([&](Group& group, int rank) {
    std::vector<float> values(60'000, static_cast<float>(rank + 1));
    Payload payload;
    for (float& value : values) {
      auto* bytes = reinterpret_cast<uint8_t*>(&value);
      payload.add(bytes, bytes, sizeof value);
    }
    CHECK(payload.pieces().size() * 24 > group.arena()->slot_bytes());
    allreduce_shared(group, {DType::kFloat32, ReduceOp::kSum, 1.0, 1.0, 2}, payload, kChunkBytes,
                     {});
    for (const float value : values) CHECK_EQ(value, 3.0F);
  });
}

namespace {

// Gives the job up at the end of the first wait, when the payloads are about to be written.
class GivesUp final : public Observer {
 public:
  explicit GivesUp(Arena& arena) : arena_(arena) {}
  void phase(Phase phase, uint64_t, uint64_t, size_t, int) override {
    if (phase != Phase::kWait) return;
    (void)arena_.abandon(-1, std::chrono::seconds(50), [](const std::string&) { CHECK(false); });
  }

 private:
  Arena& arena_;
};

}  // namespace

TEST(payloads_are_not_written_once_the_job_was_given_up) {
  for (const bool in_pool : {false, true}) {
    World world(2, 1, true);
    world.each([&](Group&, int rank) {
      GivesUp observer(world.arena(rank));
      const auto group = world.make_group(rank, {0, 1}, observer);
      const Buffer ones = random_values<float>(200'000, 1);
      SharedBucket bucket(ones, sizeof(float), {in_pool, true, {}}, world.pool(rank));
      CHECK_THROWS(ErrorCode::kRankLost,
                   allreduce_shared(*group, {DType::kFloat32, ReduceOp::kSum, 1.0, 1.0, 2},
                                    bucket.payload, kChunkBytes, {}));
      CHECK(bucket.result() == ones);
    });
  }
}

// Ranks 0 and 2 are in no set together, and so may be in operations of different sets at once.
TEST(sets_that_share_ranks_do_not_share_memory_in_flight) {
  const std::vector<std::vector<int>> sets = {{0, 1}, {1, 2}, {0, 1, 2}};
  for (const size_t count : {size_t{1000}, size_t{20'000}}) {
    for (const SharedLimits& limits :
         {SharedLimits{.whole_bytes = kNoLimit}, SharedLimits{.arena_bytes = kNoLimit}}) {
      World world(3, 1, true);
      world.each([&](Group&, int rank) {
        Unobserved observer;
        std::vector<std::unique_ptr<Group>> groups;
        for (const auto& set : sets) {
          const bool is_member = std::ranges::count(set, rank) > 0;
          groups.push_back(is_member ? world.make_group(rank, set, observer) : nullptr);
        }
        for (int round = 0; round < 300; ++round) {
          const size_t index = round % 50 == 49 ? 2 : static_cast<size_t>(round % 2);
          if (!groups[index]) continue;
          std::vector<float> values(count, static_cast<float>(rank + round));
          auto* bytes = reinterpret_cast<uint8_t*>(values.data());
          Payload payload;
          payload.add(bytes, bytes, count * sizeof(float));
          const auto ranks = static_cast<int>(sets[index].size());
          allreduce_shared(*groups[index], {DType::kFloat32, ReduceOp::kSum, 1.0, 1.0, ranks},
                           payload, kNoLimit, limits);
          const int sum = std::accumulate(sets[index].begin(), sets[index].end(), ranks * round);
          CHECK_EQ(std::ranges::count(values, static_cast<float>(sum)),
                   static_cast<ptrdiff_t>(count));
        }
      });
    }
  }
}

namespace {

Buffer floats(float value) {
  const std::vector<float> values(200'000, value);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  return {bytes, bytes + values.size() * sizeof(float)};
}

void forbid_more_descriptors() {
  rlimit limit{};
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 3;
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

// What lies in the ranks' pools is added up when no descriptor is left to map it with.
template <typename Check>
void add_up_without_descriptors(Check check) {
  World world(2, 1, true);
  const auto add_up = [](Group& group, SharedBucket& bucket) {
    allreduce_shared(group, {DType::kFloat32, ReduceOp::kSum, 1.0, 1.0, 2}, bucket.payload,
                     kChunkBytes, {});
  };
  world.each([&](Group& group, int rank) {
    SharedBucket elsewhere(floats(1.0F), sizeof(float), {false, true, {}}, world.pool(rank));
    add_up(group, elsewhere);
  });
  std::vector<SharedBucket> buckets;
  for (int rank = 0; rank < 2; ++rank) {
    buckets.emplace_back(floats(1.0F), sizeof(float), Layout{true, true, {}}, world.pool(rank));
  }
  forbid_more_descriptors();
  world.each([&](Group& group, int rank) {
    SharedBucket& bucket = buckets[static_cast<size_t>(rank)];
    check([&] { add_up(group, bucket); }, bucket);
  });
}

// What a process forbids itself cannot be undone.
void in_child(void (*body)()) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
}

}  // namespace

TEST(payloads_that_cannot_be_mapped_are_copied) {
  in_child([] {
    add_up_without_descriptors([](const auto& add_up, const SharedBucket& bucket) {
      add_up();
      CHECK(bucket.result() == floats(2.0F));
    });
  });
}

TEST(payloads_that_can_neither_be_mapped_nor_copied_name_the_cause) {
  in_child([] {
    forbid_process_vm();
    add_up_without_descriptors([](const auto& add_up, const SharedBucket&) {
      try {
        add_up();
        CHECK(false);
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::kInternal);
        CHECK_EQ(error.rank(), -1);
        const std::string text = error.what();
        CHECK(text.find("Too many open files") != std::string::npos);
        CHECK(text.find("ulimit -n") != std::string::npos);
      }
    });
  });
}

TEST(where_the_kernel_refuses_the_arena_serves) {
  in_child([] {
    forbid_process_vm();
    check_all();
  });
}
