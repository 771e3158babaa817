#include "base/processors.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <limits>
#include <string_view>
#include <vector>

namespace hvdtune {
namespace {

// More than any kernel can have.
constexpr size_t kMostProcessors = size_t{1} << 20;

// 0 without a limit.
int rounded_up(long long quota_us, long long period_us) {
  if (quota_us <= 0 || period_us <= 0) return 0;
  const long long processors = (quota_us - 1) / period_us + 1;
  return static_cast<int>(std::min<long long>(processors, std::numeric_limits<int>::max()));
}

// cpu.max holds "200000 100000", or "max 100000" without a limit.
int quota_in_version_2(const std::string& group) {
  long long quota_us = 0;
  long long period_us = 0;
  std::ifstream(group + "/cpu.max") >> quota_us >> period_us;
  return rounded_up(quota_us, period_us);
}

// The quota is -1 without a limit.
int quota_in_version_1(const std::string& group) {
  long long quota_us = 0;
  long long period_us = 0;
  std::ifstream(group + "/cpu.cfs_quota_us") >> quota_us;
  std::ifstream(group + "/cpu.cfs_period_us") >> period_us;
  return rounded_up(quota_us, period_us);
}

int stricter(int one, int other) {
  return one == 0 || other == 0 ? std::max(one, other) : std::min(one, other);
}

// Of the group and those around it. What is mounted in a container begins at the container's own
// group, where the outer part of the path leads nowhere: only the mount's root counts then.
template <typename Quota>
int least_quota(const std::string& mount, std::string path, Quota quota_of) {
  int least = 0;
  for (;;) {
    while (path.ends_with('/')) path.pop_back();
    least = stricter(least, quota_of(mount + path));
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

bool has_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const size_t end = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, end) == "cpu") return true;
    controllers.remove_prefix(std::min(end + 1, controllers.size()));
  }
  return false;
}

// Empty where the system does not say.
std::vector<cpu_set_t> allowed_processors(int pid) {
  // The kernel refuses a set that is smaller than its own.
  for (size_t count = 1; count * CPU_SETSIZE <= kMostProcessors; count *= 2) {
    std::vector<cpu_set_t> allowed(count);
    if (sched_getaffinity(pid, count * sizeof(cpu_set_t), allowed.data()) == 0) return allowed;
    if (errno != EINVAL) break;
  }
  return {};
}

int allowed_processors(std::span<const int> pids) {
  std::vector<cpu_set_t> together;
  for (const int pid : pids) {
    const std::vector<cpu_set_t> allowed = allowed_processors(pid);
    if (together.size() < allowed.size()) together.resize(allowed.size());
    for (size_t i = 0; i < allowed.size(); ++i) CPU_OR(&together[i], &together[i], &allowed[i]);
  }
  return together.empty() ? 0 : CPU_COUNT_S(together.size() * sizeof(cpu_set_t), together.data());
}

}  // namespace

int quota_processors(const CgroupFiles& files) {
  int least = 0;
  std::ifstream memberships(files.memberships);
  // Lines are "0::/path" for version 2, "4:cpu,cpuacct:/path" for each hierarchy of version 1.
  for (std::string line; std::getline(memberships, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      least = stricter(least, least_quota(files.mounts, path, &quota_in_version_2));
    } else if (has_cpu(controllers)) {
      for (const std::string& name : {std::string("cpu"), controllers}) {
        least = stricter(least, least_quota(files.mounts + "/" + name, path, &quota_in_version_1));
      }
    }
  }
  return least;
}

int usable_processors(std::span<const int> pids) {
  return stricter(allowed_processors(pids), quota_processors());
}

int usable_processors() {
  constexpr std::array<int, 1> kThis = {0};
  return usable_processors(kThis);
}

}  // namespace hvdtune
