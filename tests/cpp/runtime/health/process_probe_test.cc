#include "runtime/health/process_probe.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "check.h"

using namespace hvdtune;

TEST(a_process_is_seen_to_run_to_be_stopped_and_to_be_gone) {
  const Introduction self = introduce_self();
  CHECK_EQ(self.pid, getpid());
  CHECK(look_at_process(self, self) == Sight::kRuns);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const Introduction other{child, self.pid_namespace};
  CHECK(look_at_process(other, self) == Sight::kRuns);
  int status = 0;
  kill(child, SIGSTOP);
  waitpid(child, &status, WUNTRACED);
  CHECK(look_at_process(other, self) == Sight::kStopped);
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  CHECK(look_at_process(other, self) == Sight::kGone);
  waitpid(child, &status, 0);
  CHECK(look_at_process(other, self) == Sight::kGone);
}

TEST(who_cannot_be_seen_from_here_is_unknown) {
  const Introduction self = introduce_self();
  CHECK(look_at_process({}, self) == Sight::kUnknown);
  CHECK(look_at_process({getpid(), self.pid_namespace + 1}, self) == Sight::kUnknown);
}
