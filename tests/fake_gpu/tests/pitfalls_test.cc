// What NCCL's manual and its issues warn of is found, and hangs where it would hang.
#include "ranks.h"

using namespace fake_gpu_tests;

namespace {

void clean() {
  fakeGpuReset();
  CHECK_EQ(fakeGpuSetFaults(""), 0);
}

// Two communicators of the same two ranks.
struct Both {
  ncclUniqueId first = new_id();
  ncclUniqueId second = new_id();
};

ncclResult_t allreduce(ncclComm_t comm, CUdeviceptr memory, CUstream stream) {
  return settled(comm, ncclAllReduce(pointer(memory), pointer(memory), 100, ncclFloat32, ncclSum,
                                     comm, stream));
}

void abort_in_a_group(const Member& one, const Member& other) {
  ok(ncclGroupStart());
  ok(ncclCommAbort(one.comm));
  ok(ncclCommAbort(other.comm));
  ok(ncclGroupEnd());
}

}  // namespace

TEST(an_abort_with_another_thread_inside_hangs) {
  clean();
  const ncclUniqueId id = new_id();
  ncclComm_t comm = nullptr;
  std::atomic<bool> left{false};
  // Joining blocks, since no other rank comes.
  std::thread inside([&] {
    use_device(0);
    ncclConfig_t config = configuration(true);
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) != ncclSuccess);
    left = true;
  });
  std::atomic<bool> returned{false};
  std::thread outside([&] {
    use_device(0);
    until([&] { return std::atomic_ref(comm).load() != nullptr; });
    ncclCommAbort(comm);
    returned = true;
  });
  until([] { return fakeGpuViolations("abort-with-thread-inside") == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(!returned);
  release_until([&] { return returned && left; });
  outside.join();
  inside.join();
}

TEST(communicators_aborted_one_after_another_hang_and_in_a_group_do_not) {
  for (const bool grouped : {false, true}) {
    clean();
    CHECK_EQ(fakeGpuSetFaults("late-peer rank=1 ms=-1"), 0);
    const Both ids;
    std::atomic<int> returned{0};
    std::thread watcher([&] {
      if (grouped) return;
      until([] { return fakeGpuViolations("abort-one-by-one") == 2; });
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK_EQ(returned.load(), 0);
      release_until([&] { return returned == 2; });
    });
    run_ranks(2, [&](int rank) {
      Member one(ids.first, 2, rank);
      Member other(ids.second, 2, rank);
      one.allreduce();
      other.allreduce();
      if (grouped) ok(ncclGroupStart());
      ncclCommAbort(one.comm);
      ++returned;
      ncclCommAbort(other.comm);
      if (grouped) ok(ncclGroupEnd());
    });
    watcher.join();
    CHECK_EQ(fakeGpuViolations("abort-one-by-one"), grouped ? 0u : 2u);
  }
}

TEST(before_2_22_a_group_of_aborts_does_not_help) {
  clean();
  ::setenv("FAKE_NCCL_VERSION", "22105", 1);
  use_device(0);
  CHECK_EQ(fakeGpuSetFaults("late-peer ms=-1"), 0);
  Member one(new_id(), 1, 0);
  Member other(new_id(), 1, 0);
  one.allreduce();
  other.allreduce();
  std::atomic<bool> returned{false};
  std::thread releaser([&] {
    until([] { return fakeGpuViolations("abort-one-by-one") == 1; });
    release_until([&] { return returned.load(); });
  });
  abort_in_a_group(one, other);
  returned = true;
  releaser.join();
  ::unsetenv("FAKE_NCCL_VERSION");
}

TEST(opposite_orders_of_two_communicators_deadlock) {
  for (const bool on_one_stream : {false, true}) {
    clean();
    const Both ids;
    std::barrier both(2);
    run_ranks(2, [&](int rank) {
      Member one(ids.first, 2, rank);
      Member other(ids.second, 2, rank);
      if (on_one_stream) {
        ok(cuStreamSynchronize(other.stream));
        other.stream = one.stream;
      }
      Member& early = rank == 0 ? one : other;
      Member& late = rank == 0 ? other : one;
      early.allreduce();
      late.allreduce();
      until([] { return fakeGpuViolations("communicator-order") >= 1; });
      CHECK(!early.is_idle() && !late.is_idle());
      // Between the aborts of one rank its second kernel may begin, which the other rank waits for.
      both.arrive_and_wait();
      abort_in_a_group(one, other);
    });
  }
}

TEST(equal_orders_of_two_communicators_do_not_deadlock) {
  clean();
  const Both ids;
  run_ranks(2, [&](int rank) {
    Member one(ids.first, 2, rank);
    Member other(ids.second, 2, rank);
    for (int i = 0; i < 5; ++i) {
      one.allreduce();
      other.allreduce();
    }
    CHECK_EQ(from_device<float>(one.memory, 1, one.stream)[0], 32.0f);
    CHECK_EQ(from_device<float>(other.memory, 1, other.stream)[0], 32.0f);
    leave(one.comm);
    leave(other.comm);
  });
  no_violations();
}

TEST(equal_orders_are_equal_whatever_a_rank_sends_to_itself) {
  clean();
  const Both ids;
  run_ranks(2, [&](int rank) {
    Member one(ids.first, 2, rank);
    Member other(ids.second, 2, rank);
    ok(cuStreamSynchronize(other.stream));
    other.stream = one.stream;
    const auto half = static_cast<CUdeviceptr>(one.count / 2 * sizeof(float));
    for (int i = 0; i < 20 && rank == 1; ++i) {
      ok(ncclGroupStart());
      for (const bool sends : {true, false}) {
        const ncclResult_t begun =
            sends
                ? ncclSend(pointer(one.memory), 10, ncclFloat32, rank, one.comm, one.stream)
                : ncclRecv(pointer(one.memory + half), 10, ncclFloat32, rank, one.comm, one.stream);
        CHECK(begun == ncclSuccess || begun == ncclInProgress);
      }
      ok(settled(one.comm, ncclGroupEnd()));
    }
    for (int i = 0; i < 20; ++i) {
      one.allreduce();
      other.allreduce();
    }
    until([&] { return one.is_idle(); });
    leave(one.comm);
    leave(other.comm);
  });
  no_violations();
}

TEST(opposite_orders_of_messages_deadlock) {
  clean();
  const Both ids;
  std::barrier both(2);
  run_ranks(2, [&](int rank) {
    Member one(ids.first, 2, rank);
    Member other(ids.second, 2, rank);
    Member& early = rank == 0 ? one : other;
    Member& late = rank == 0 ? other : one;
    ok(settled(early.comm, ncclRecv(pointer(early.memory), 10, ncclFloat32, 1 - rank, early.comm,
                                    early.stream)));
    ok(settled(late.comm,
               ncclSend(pointer(late.memory), 10, ncclFloat32, 1 - rank, late.comm, late.stream)));
    until([] { return fakeGpuViolations("communicator-order") >= 1; });
    both.arrive_and_wait();
    abort_in_a_group(one, other);
  });
}

TEST(joining_one_while_another_thread_aborts_another_is_found) {
  clean();
  const Both ids;
  use_device(0);
  const ncclComm_t slow = joining(ids.first, 2, 0);
  std::thread other([&] {
    use_device(0);
    const ncclComm_t comm = joined(ids.second, 1, 0);
    ok(ncclCommAbort(comm));
  });
  other.join();
  CHECK_EQ(fakeGpuViolations("init-races-abort"), 1u);
  ok(ncclCommAbort(slow));  // by the thread that joins it: allowed
  CHECK_EQ(fakeGpuViolations(nullptr), 1u);
}

TEST(a_communicator_that_is_being_aborted_is_not_finalized) {
  clean();
  use_device(0);
  CHECK_EQ(fakeGpuSetFaults("slow-abort ms=-1"), 0);
  const ncclComm_t comm = joined(new_id(), 1, 0);
  std::atomic<bool> returned{false};
  std::thread aborter([&] {
    use_device(0);
    ncclCommAbort(comm);
    returned = true;
  });
  until([] { return fakeGpuFaultsHit("slow-abort") == 1; });
  CHECK_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
  CHECK_EQ(fakeGpuViolations("finalize-races-abort"), 1u);
  release_until([&] { return returned.load(); });
  aborter.join();
  CHECK_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  CHECK_EQ(fakeGpuViolations("use-after-destroy"), 1u);
}

TEST(a_second_thread_in_a_call_is_found) {
  clean();
  use_device(0);
  CHECK_EQ(fakeGpuSetFaults("late-peer ms=-1"), 0);
  ncclConfig_t config = configuration(true);
  ncclComm_t comm = nullptr;
  ok(ncclCommInitRankConfig(&comm, 1, new_id(), 0, &config));
  const CUstream stream = new_stream();
  const auto memory = on_device(std::vector<float>(100), stream);
  ok(ncclAllReduce(pointer(memory), pointer(memory), 100, ncclFloat32, ncclSum, comm, stream));
  // Blocks: a kernel is in flight.
  std::atomic<bool> returned{false};
  std::thread inside([&] {
    use_device(0);
    ncclCommFinalize(comm);
    returned = true;
  });
  int count = 0;
  until([&] {
    ncclCommCount(comm, &count);
    return fakeGpuViolations("second-thread") > 0;
  });
  release_until([&] { return returned && cuStreamQuery(stream) == CUDA_SUCCESS; });
  inside.join();
}

TEST(a_communicator_is_not_used_before_a_launch_has_ended) {
  clean();
  use_device(0);
  CHECK_EQ(fakeGpuSetFaults("slow-launch ms=-1 times=1"), 0);
  Member member(new_id(), 1, 0);
  CHECK_EQ(member.start_allreduce(), ncclInProgress);
  CHECK_EQ(member.start_allreduce(), ncclInvalidArgument);
  CHECK_EQ(fakeGpuViolations("not-ready"), 1u);
  ok(ncclCommAbort(member.comm));
}

TEST(an_event_recorded_before_a_launch_has_ended_orders_nothing) {
  clean();
  use_device(0);
  CHECK_EQ(fakeGpuSetFaults("slow-launch ms=30 times=1"), 0);
  Member member(new_id(), 1, 0);
  const CUstream reader = new_stream();
  CUevent event = nullptr;
  ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CHECK_EQ(member.start_allreduce(), ncclInProgress);
  ok(cuEventRecord(event, member.stream));
  ok(cuStreamWaitEvent(reader, event, 0));
  ok(settled(member.comm, ncclInProgress));
  ok(cuMemsetD8Async(member.memory, 0, 4, reader));
  CHECK_EQ(fakeGpuViolations("race"), 1u);
  leave(member.comm);
}

TEST(buffers_are_registered_from_nccls_memory_and_on_all_ranks) {
  clean();
  const ncclUniqueId id = new_id();
  run_ranks(2, [&](int rank) {
    Member member(id, 2, rank);
    void* memory = nullptr;
    ok(ncclMemAlloc(&memory, 400));
    ok(cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(memory), 0, 400, member.stream));
    void* handle = nullptr;
    ok(ncclCommRegister(member.comm, memory, 400, &handle));
    no_violations();
    ok(allreduce(member.comm, reinterpret_cast<CUdeviceptr>(memory), member.stream));
    ok(cuStreamSynchronize(member.stream));
    no_violations();
    if (rank == 1) ok(ncclCommDeregister(member.comm, handle));
    ok(allreduce(member.comm, reinterpret_cast<CUdeviceptr>(memory), member.stream));
    ok(cuStreamSynchronize(member.stream));
    CHECK(fakeGpuViolations("mixed-registration") >= 1);
    leave(member.comm);
    ok(ncclMemFree(memory));
  });
  clean();
  use_device(0);
  Member member(new_id(), 1, 0);
  void* handle = nullptr;
  ok(ncclCommRegister(member.comm, pointer(member.memory), 100, &handle));
  CHECK_EQ(fakeGpuViolations("plain-registered"), 1u);
  leave(member.comm);
}

TEST(ranks_that_disagree_hang_and_are_told_how) {
  clean();
  const ncclUniqueId id = new_id();
  run_ranks(2, [&](int rank) {
    Member member(id, 2, rank);
    ok(settled(member.comm,
               ncclAllReduce(pointer(member.memory), pointer(member.memory), rank == 0 ? 10 : 11,
                             ncclFloat32, ncclSum, member.comm, member.stream)));
    until([] { return fakeGpuViolations("mismatch") == 2; });
    CHECK(!member.is_idle());
    ok(ncclCommAbort(member.comm));
  });
}

TEST(a_configuration_must_be_initialised_and_whole) {
  clean();
  use_device(0);
  ncclComm_t comm = nullptr;
  ncclConfig_t config{};
  CHECK_EQ(ncclCommInitRankConfig(&comm, 1, new_id(), 0, &config), ncclInvalidArgument);
  config = configuration();
  config.size = 48;
  CHECK_EQ(ncclCommInitRankConfig(&comm, 1, new_id(), 0, &config), ncclInvalidArgument);
  CHECK_EQ(fakeGpuViolations("bad-config"), 2u);
  config.version = 21800;
  CHECK_EQ(ncclCommInitRankConfig(&comm, 1, new_id(), 0, &config), ncclInProgress);
  ok(settled(comm, ncclInProgress));
  leave(comm);
}
