#include "transport/shm/peer_process.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <memory>
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

namespace {

// "" if it cannot be read.
std::string content_of(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(4096, '\0');
  const ssize_t got = fd.get() < 0 ? 0 : read(fd.get(), text.data(), text.size());
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

// A thread with SIGKILL pending does not return from the kernel. There, only a copy between
// processes writes the memory of others.
bool is_dying_task(const std::string& folder) {
  constexpr std::string_view kPending = "\nSigPnd:\t";
  constexpr uint64_t kKill = uint64_t{1} << (SIGKILL - 1);
  const std::string status = content_of(folder + "/status");
  const size_t at = status.find(kPending);
  uint64_t pending = 0;
  if (at != std::string::npos) {
    std::from_chars(status.data() + at + kPending.size(), status.data() + status.size(), pending,
                    16);
  }
  // "running", or the number of the system call, -1 for none, and its arguments
  const std::string call = content_of(folder + "/syscall");
  long number = 0;
  const auto parsed = std::from_chars(call.data(), call.data() + call.size(), number);
  return (pending & kKill) != 0 && parsed.ec == std::errc() && number != SYS_process_vm_readv &&
         number != SYS_process_vm_writev;
}

}  // namespace

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

bool PeerProcess::is_dying_without_copying() {
  find();
  if (gone_ || found_.get() < 0) return gone_;
  const std::string folder = "/proc/" + std::to_string(pid_) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(folder.c_str()), &closedir);
  if (!tasks) return false;
  bool all = true;
  while (const dirent* entry = readdir(tasks.get())) {
    if (entry->d_name[0] != '.') all &= is_dying_task(folder + "/" + entry->d_name);
  }
  return all;
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
