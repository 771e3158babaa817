#include "runtime/health/process_probe.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "check.h"
#include "transport/shm/peer_process.h"

using namespace hvdtune;

namespace {

ProcessIdentity identity_of(pid_t pid) {
  ProcessStat stat;
  CHECK_EQ(read_process_stat(pid, stat), 0);
  return {pid, own_pid_namespace(), stat.started};
}

}  // namespace

TEST(a_process_is_seen_to_run_to_be_stopped_and_to_be_gone) {
  const ProcessIdentity self = own_identity();
  CHECK_EQ(self.pid, getpid());
  CHECK(probe_process(self, self) == ProcessState::kRuns);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const ProcessIdentity other = identity_of(child);
  CHECK(probe_process(other, self) == ProcessState::kRuns);
  int status = 0;
  kill(child, SIGSTOP);
  waitpid(child, &status, WUNTRACED);
  CHECK(probe_process(other, self) == ProcessState::kStopped);
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK(probe_process(other, self) == ProcessState::kGone);
  waitpid(child, &status, 0);
  CHECK(probe_process(other, self) == ProcessState::kGone);
}

TEST(who_cannot_be_seen_from_here_is_unknown) {
  const ProcessIdentity self = own_identity();
  CHECK(probe_process({}, self) == ProcessState::kUnknown);
  CHECK(probe_process({self.pid, self.pid_namespace + 1, self.started}, self) ==
        ProcessState::kUnknown);
  CHECK(probe_process({self.pid, self.pid_namespace}, self) == ProcessState::kUnknown);
}

TEST(a_process_that_was_given_the_number_of_one_that_ended_is_not_taken_for_it) {
  const ProcessIdentity self = own_identity();
  ProcessIdentity earlier = self;
  --earlier.started;
  CHECK(probe_process(earlier, self) == ProcessState::kGone);
}
