#include "runtime/health/process_probe.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "check.h"

using namespace hvdtune;

TEST(a_process_is_seen_to_run_to_be_stopped_and_to_be_gone) {
  const ProcessIdentity self = own_identity();
  CHECK_EQ(self.pid, getpid());
  CHECK(probe_process(self, self) == ProcessState::kRuns);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const ProcessIdentity other{child, self.pid_namespace};
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
  CHECK(probe_process({getpid(), self.pid_namespace + 1}, self) == ProcessState::kUnknown);
}
