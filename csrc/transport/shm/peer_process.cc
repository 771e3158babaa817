#include "transport/shm/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace hvdtune {

int read_process_stat(pid_t pid, ProcessStat& stat) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return errno;
  std::array<char, 512> text;
  const ssize_t got = read(fd.get(), text.data(), text.size());
  if (got < 0) return errno;
  // "pid (name) state ...", where the name may hold anything. The start time is field 22.
  const std::string_view line(text.data(), static_cast<size_t>(got));
  size_t at = line.rfind(") ");
  if (at == std::string_view::npos || at + 2 >= line.size()) return EIO;
  stat.state = line[at + 2];
  for (int field = 2; field < 22 && at != std::string_view::npos; ++field) {
    at = line.find(' ', at + 1);
  }
  if (at == std::string_view::npos) return EIO;
  const auto parsed =
      std::from_chars(line.data() + at + 1, line.data() + line.size(), stat.started);
  return parsed.ec == std::errc() ? 0 : EIO;
}

uint64_t own_pid_namespace() {
  struct stat facts{};
  return ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
}

void PeerProcess::find() {
  if (gone_ || found_.get() >= 0) return;
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  if (fd.get() < 0 && ::kill(pid_, 0) != 0 && errno == ESRCH) {
    gone_ = true;
    return;
  }
  // Asked once it is held: what has this start time now had its number then.
  ProcessStat stat;
  if (read_process_stat(pid_, stat) != 0) return;
  gone_ = stat.started != started_;
  if (!gone_) found_ = std::move(fd);
}

bool PeerProcess::lives() {
  find();
  if (gone_ || found_.get() >= 0) return !await_end(0);
  ProcessStat stat;  // a kernel without pidfd_open
  return read_process_stat(pid_, stat) == 0 && stat.started == started_;
}

bool PeerProcess::await_end(int limit_ms) {
  find();
  if (gone_) return true;
  pollfd ended{found_.get(), POLLIN, 0};  // poll passes over a negative descriptor
  gone_ = poll(&ended, 1, limit_ms) > 0 && (ended.revents & POLLIN) != 0;
  return gone_;
}

std::string PeerProcess::kill() {
  if (pid_ == getpid()) return "it is a thread of this process";
  find();
  if (gone_) return {};
  if (found_.get() < 0) return "this process cannot find it (pidfd_open, /proc)";
  if (syscall(SYS_pidfd_send_signal, found_.get(), SIGKILL, nullptr, 0) == 0) return {};
  return errno == ESRCH ? "" : system_message("pidfd_send_signal", errno);
}

}  // namespace hvdtune
