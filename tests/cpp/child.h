// A process beside the test's own.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

// A copy of this process: the same addresses, other memory from now on.
class Child {
 public:
  Child() : pid_(fork()) {
    CHECK(pid_ >= 0);
    while (pid_ == 0) pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    CHECK_EQ(waitpid(pid_, nullptr, 0), pid_);
    pid_ = 0;
  }
  // Its files and its memory are gone when this returns, but its number is still its own.
  void end_without_asking() {
    CHECK_EQ(kill(pid_, SIGKILL), 0);
    siginfo_t info;
    CHECK_EQ(waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT), 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};
