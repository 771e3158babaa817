// Faults strike the rank and the operation that a test names, and the others see what they would.
#include <dlfcn.h>

#include "ranks.h"

using namespace fake_gpu_tests;

namespace {

// Both ranks, one operation in flight each, under these faults. Then both abort.
void run_pair(const char* faults, const std::function<void(int, Member&)>& body) {
  fakeGpuReset();
  CHECK_EQ(fakeGpuSetFaults(faults), 0);
  const ncclUniqueId id = new_id();
  run_ranks(2, [&](int rank) {
    Member member(id, 2, rank);
    body(rank, member);
    ok(ncclCommAbort(member.comm));
    until([&] { return member.is_idle(); });
    ok(cuMemFree_v2(member.memory));
  });
  no_violations();
}

}  // namespace

TEST(a_late_peer_is_waited_for) {
  run_pair("late-peer rank=1 op=1 ms=20", [](int, Member& member) {
    member.allreduce();
    CHECK_EQ(from_device<float>(member.memory, 1, member.stream)[0], 2.0f);
  });
  CHECK_EQ(fakeGpuFaultsHit("late-peer"), 1u);
}

TEST(a_peer_that_never_comes_is_waited_for_until_the_abort) {
  run_pair("late-peer rank=1 op=2 ms=-1", [](int, Member& member) {
    member.allreduce();
    ok(cuStreamSynchronize(member.stream));
    member.allreduce();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK(!member.is_idle());
    CHECK_EQ(state_of(member.comm), ncclSuccess);
  });
}

TEST(an_error_of_one_rank_is_seen_by_that_rank_alone) {
  std::barrier both(2);
  run_pair("async-error rank=0 op=1 code=2", [&](int rank, Member& member) {
    settled(member.comm, member.start_allreduce());
    if (rank == 0) until([&] { return state_of(member.comm) != ncclSuccess; });
    both.arrive_and_wait();
    CHECK_EQ(state_of(member.comm), rank == 0 ? ncclSystemError : ncclSuccess);
    CHECK(!member.is_idle());
    if (rank == 0) {
      CHECK_EQ(member.start_allreduce(), ncclSystemError);
      CHECK(std::string(ncclGetLastError(member.comm)).find("as a fault asked") !=
            std::string::npos);
    }
    both.arrive_and_wait();
  });
}

TEST(joining_never_ends_until_the_abort) {
  fakeGpuReset();
  CHECK_EQ(fakeGpuSetFaults("never-ready rank=1"), 0);
  const ncclUniqueId id = new_id();
  std::barrier both(2);
  run_ranks(2, [&](int rank) {
    const ncclComm_t comm = joining(id, 2, rank);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_EQ(state_of(comm), ncclInProgress);
    both.arrive_and_wait();
    ok(ncclCommAbort(comm));
  });
  no_violations();
}

TEST(joining_is_refused) {
  fakeGpuReset();
  CHECK_EQ(fakeGpuSetFaults("refuse-init rank=0 code=3"), 0);
  use_device(0);
  const ncclComm_t comm = joining(new_id(), 2, 0);
  CHECK_EQ(settled(comm, ncclInProgress), ncclInternalError);
  ok(ncclCommAbort(comm));
  no_violations();
}

TEST(an_abort_is_slow) {
  run_pair("late-peer rank=0 ms=-1; slow-abort rank=0 ms=20",
           [](int, Member& member) { member.allreduce(); });
  CHECK_EQ(fakeGpuFaultsHit("slow-abort"), 1u);
}

TEST(an_abort_hangs) {
  fakeGpuReset();
  CHECK_EQ(fakeGpuSetFaults("hung-abort"), 0);
  const ncclUniqueId id = new_id();
  std::atomic<bool> returned{false};
  std::thread rank([&] {
    use_device(0);
    const Member member(id, 1, 0);
    ncclCommAbort(member.comm);
    returned = true;
  });
  until([] { return fakeGpuFaultsHit("hung-abort") == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(!returned);
  release_until([&] { return returned.load(); });
  rank.join();
}

TEST(a_launch_takes_its_time) {
  run_pair("slow-launch rank=0 ms=-1 times=1", [](int rank, Member& member) {
    ok(cuStreamSynchronize(member.stream));  // its memory has its values
    const ncclResult_t result = member.start_allreduce();
    CHECK_EQ(result, ncclInProgress);
    if (rank == 1) return ok(settled(member.comm, result));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    CHECK_EQ(state_of(member.comm), ncclInProgress);
    CHECK(member.is_idle());  // nothing is on the stream
  });
}

TEST(ranks_on_one_device_are_refused_as_the_version_does) {
  fakeGpuReset();
  for (const bool enabled : {false, true}) {
    if (enabled) {
      ::setenv("FAKE_NCCL_VERSION", "23007", 1);
      ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    }
    const ncclUniqueId id = new_id();
    std::vector<std::thread> ranks;
    std::atomic<int> refused{0};
    for (int rank = 0; rank < 2; ++rank) {
      ranks.emplace_back([&, rank] {
        use_device(0);
        const ncclComm_t comm = joining(id, 2, rank);
        if (settled(comm, ncclInProgress) == ncclInvalidUsage) ++refused;
        ok(ncclCommAbort(comm));
      });
    }
    for (auto& rank : ranks) rank.join();
    CHECK_EQ(refused.load(), enabled ? 0 : 2);
  }
  ::unsetenv("FAKE_NCCL_VERSION");
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

TEST(an_old_library_has_less) {
  void* old = ::dlopen(FAKE_NCCL_OLD_PATH, RTLD_NOW | RTLD_LOCAL);
  if (old == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
  CHECK(old != nullptr);
  const auto version = reinterpret_cast<decltype(&ncclGetVersion)>(::dlsym(old, "ncclGetVersion"));
  int number = 0;
  ok(version(&number));
  CHECK_EQ(number, 21701);
  for (const char* name :
       {"ncclCommSplit", "ncclMemAlloc", "ncclMemFree", "ncclCommRegister", "ncclCommDeregister"}) {
    CHECK(::dlsym(old, name) == nullptr);
  }
}
