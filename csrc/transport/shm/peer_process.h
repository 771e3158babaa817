// Another process of this host, which may have to be ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/unique_fd.h"

namespace hvdtune {

// What /proc says of a process.
struct ProcessStat {
  char state = 0;
  uint64_t started = 0;  // clock ticks since boot: tells a process from a later one of its number
};

// Returns 0 or an errno value: ENOENT and ESRCH for a process that is gone.
int read_process_stat(pid_t pid, ProcessStat& stat);
// Of this process; 0 where /proc does not say.
uint64_t own_pid_namespace();

// Thread rule: one thread.
class PeerProcess {
 public:
  // `started` as in ProcessStat. REQUIRES: it lives, or lived, in this process's pid namespace.
  PeerProcess(pid_t pid, uint64_t started) : pid_(pid), started_(started) {}

  // Whether it is known to live: false as well where that cannot be found out.
  bool lives();
  // Waits for the end of all its threads, at most `limit_ms`. False, too, while it is not known.
  bool await_end(int limit_ms);
  // Whether the kernel is bound to end it before it runs another instruction of its program, and it
  // copies nothing to other processes meanwhile. False, too, while that is not known.
  bool is_dying_without_copying();
  // Sends SIGKILL, never to another process of this number. Returns why it cannot, "" if it can.
  std::string kill();

 private:
  void find();

  pid_t pid_;
  uint64_t started_;
  bool gone_ = false;
  UniqueFd found_;  // stands for the process, whatever becomes of its number
};

}  // namespace hvdtune
