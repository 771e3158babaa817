// Ranks as processes. They are forked before this process has a thread beside its first.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "ranks.h"

using namespace fake_gpu_tests;

namespace {

// Runs each rank in a process of its own; returns how they ended, as waitpid says it. Calls
// `when_forked` here once all are there.
std::vector<int> run_processes(
    int ranks, const std::function<bool(int)>& body,
    const std::function<void()>& when_forked = [] {}) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child == 0) {
      use_device(rank);
      std::_Exit(body(rank) ? 0 : 1);
    }
    children.push_back(child);
  }
  when_forked();
  std::vector<int> ends;
  for (const pid_t child : children) {
    int status = -1;
    CHECK_EQ(::waitpid(child, &status, 0), child);
    ends.push_back(status);
  }
  return ends;
}

}  // namespace

TEST(processes_reduce_together) {
  const ncclUniqueId id = new_id();
  const auto ends = run_processes(2, [&](int rank) {
    Member member(id, 2, rank);
    member.allreduce();
    const bool right = from_device<float>(member.memory, member.count, member.stream) ==
                       std::vector<float>(member.count, 2.0f);
    leave(member.comm);
    return right && fakeGpuViolations(nullptr) == 0;
  });
  CHECK(ends == (std::vector<int>{0, 0}));
}

TEST(a_process_killed_in_flight_leaves_the_others_waiting_until_they_abort) {
  const ncclUniqueId id = new_id();
  int alive[2];  // a pipe that only the rank that is killed can still write to
  CHECK_EQ(::pipe(alive), 0);
  const auto keeps_nothing_open = [&] { ::close(alive[1]); };
  const auto body = [&](int rank) {
    if (rank != 1) keeps_nothing_open();
    ok(static_cast<CUresult>(fakeGpuSetFaults("kill rank=1 op=2")));
    Member member(id, 3, rank);
    member.allreduce();
    member.allreduce();
    if (rank == 1) ::alarm(60);  // if nothing kills it
    while (rank == 1) ::pause();
    char nothing = 0;
    const bool is_gone = ::read(alive[0], &nothing, 1) == 0;
    const bool waits = !member.is_idle() && state_of(member.comm) == ncclSuccess;
    ok(ncclCommAbort(member.comm));
    until([&] { return member.is_idle(); });
    return is_gone && waits && fakeGpuViolations(nullptr) == 0;
  };
  const auto ends = run_processes(3, body, keeps_nothing_open);
  ::close(alive[0]);
  CHECK_EQ(ends[0], 0);
  CHECK(WIFSIGNALED(ends[1]) && WTERMSIG(ends[1]) == SIGKILL);
  CHECK_EQ(ends[2], 0);
}

TEST(a_process_killed_while_joining_leaves_no_name_behind) {
  const ncclUniqueId id = new_id();
  const std::string path = std::string("/dev/shm/") + id.internal;
  const auto ends = run_processes(2, [&](int rank) {
    if (rank == 1) return true;  // never comes
    const ncclComm_t comm = joining(id, 2, 0);
    until([&] { return ::access(path.c_str(), F_OK) == 0; });
    ok(ncclCommAbort(comm));
    return ::access(path.c_str(), F_OK) != 0;
  });
  CHECK(ends == (std::vector<int>{0, 0}));
}

TEST(the_host_cannot_read_device_memory) {
  const auto ends = run_processes(1, [](int) {
    ::signal(SIGSEGV, SIG_DFL);  // a sanitizer's handler would only say so at length
    CUdeviceptr memory = 0;
    ok(cuMemAlloc_v2(&memory, 1));
    return *static_cast<volatile char*>(pointer(memory)) == 0;
  });
  CHECK(WIFSIGNALED(ends[0]) && WTERMSIG(ends[0]) == SIGSEGV);
}
