#include "runtime/health/process_probe.h"

#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace hvdtune {

ProcessIdentity own_identity() {
  struct stat facts{};
  const bool known = stat("/proc/self/ns/pid", &facts) == 0;
  return {getpid(), known ? facts.st_ino : 0};
}

ProcessState probe_process(const ProcessIdentity& who, const ProcessIdentity& self) {
  if (who.pid <= 0 || who.pid_namespace == 0 || who.pid_namespace != self.pid_namespace) {
    return ProcessState::kUnknown;
  }
  const std::string path = "/proc/" + std::to_string(who.pid) + "/stat";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return errno == ENOENT ? ProcessState::kGone : ProcessState::kUnknown;
  std::array<char, 512> text;
  const ssize_t got = read(fd.get(), text.data(), text.size());
  if (got <= 0) return got < 0 && errno == ESRCH ? ProcessState::kGone : ProcessState::kUnknown;
  // "pid (name) state ...", where the name may hold anything.
  const std::string_view line(text.data(), static_cast<size_t>(got));
  const size_t end = line.rfind(") ");
  if (end == std::string_view::npos || end + 2 >= line.size()) return ProcessState::kUnknown;
  switch (line[end + 2]) {
    case 'T':
      return ProcessState::kStopped;
    case 'Z':
    case 'X':
      return ProcessState::kGone;
    default:
      return ProcessState::kRuns;  // 't', held by a debugger, included
  }
}

bool is_unacknowledged(int fd, uint64_t for_ns) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  return info.tcpi_unacked > 0 && info.tcpi_last_ack_recv >= for_ns / 1'000'000;
}

}  // namespace hvdtune
