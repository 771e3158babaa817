// A job whose ranks are processes. They are made before this one has any thread.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <vector>

#include "gpu_job.h"

namespace hvdtune::testing {

class RankProcesses {
 public:
  // `run` is given the rank's number and the rendezvous server's port; what it returns is the exit
  // code.
  RankProcesses(int size, const std::function<int(int, uint16_t)>& run) {
    std::vector<int> write_ends;
    for (int rank = 0; rank < size; ++rank) {
      std::array<int, 2> ends{};
      CHECK_EQ(pipe(ends.data()), 0);
      const pid_t pid = fork();
      if (pid == 0) {
        uint16_t port = 0;
        CHECK_EQ(read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
        std::_Exit(run(rank, port));
      }
      pids_.push_back(pid);
      close(ends[0]);
      write_ends.push_back(ends[1]);
    }
    server_ = std::make_unique<JobServer>(server_options(size));
    const uint16_t port = server_->port();
    for (const int end : write_ends) {
      CHECK_EQ(write(end, &port, sizeof port), static_cast<ssize_t>(sizeof port));
      close(end);
    }
  }

  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  // The status of waitpid; returns when the process has ended, or with WUNTRACED been stopped.
  int await(int rank, int options = 0) const {
    int status = 0;
    CHECK_EQ(waitpid(pid(rank), &status, options), pid(rank));
    return status;
  }
  void expect_exit(int rank, int code) const {
    const int status = await(rank);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), code);
  }

 private:
  std::vector<pid_t> pids_;
  std::unique_ptr<JobServer> server_;
};

}  // namespace hvdtune::testing
