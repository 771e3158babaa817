#include "runtime/health/process_probe.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "transport/shm/peer_process.h"

namespace hvdtune {

ProcessIdentity own_identity() {
  ProcessStat stat;
  const bool is_known = read_process_stat(getpid(), stat) == 0;
  return {getpid(), own_pid_namespace(), is_known ? stat.started : 0};
}

ProcessState probe_process(const ProcessIdentity& who, const ProcessIdentity& self) {
  if (who.pid <= 0 || who.pid_namespace == 0 || who.pid_namespace != self.pid_namespace ||
      who.started == 0) {
    return ProcessState::kUnknown;
  }
  ProcessStat stat;
  const int error = read_process_stat(who.pid, stat);
  if (error != 0) {
    const bool gone = error == ENOENT || error == ESRCH;
    return gone ? ProcessState::kGone : ProcessState::kUnknown;
  }
  if (stat.started != who.started) return ProcessState::kGone;  // another one has its number
  switch (stat.state) {
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
