// How many processors this process has, or some processes have together.
#pragma once

#include <span>
#include <string>

namespace hvdtune {

// Where the kernel tells of control groups: its file systems of them, and which ones a process is
// in.
struct CgroupFiles {
  std::string mounts = "/sys/fs/cgroup";
  std::string memberships = "/proc/self/cgroup";
};

// How many processors the CPU quotas of a process's control groups, of version 1 or 2, are worth:
// the least of all groups that it is in, rounded up; 0 without a quota.
int quota_processors(const CgroupFiles& files = {});

// How many threads of this process can run at a time: the processors on which the calling thread
// may run, or fewer where a CPU quota grants less. 0 where the system does not say. Reads a few
// files.
int usable_processors();

// The same of the main threads of these processes together, which may each be bound to processors
// of its own; 0 stands for the calling thread. Those that have ended have none. The quota is that
// of this process.
int usable_processors(std::span<const int> pids);

}  // namespace hvdtune
