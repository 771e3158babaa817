#include "base/failpoint.h"

#include "base/status.h"

#ifdef HVDTUNE_FAILPOINTS

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstring>
#include <mutex>

#include "base/clock.h"

namespace hvdtune {
namespace {

constexpr int kMostDescriptors = 4096;  // a test's rank has fewer

enum class Action : uint8_t { kKill, kStop, kReset };

struct Armed {
  std::string name;
  Action action = Action::kKill;
  uint64_t hit = 1;
  std::string path;
};

// The only mutable state of the process: a test build's.
std::mutex mutex;
Armed armed;
uint64_t hits = 0;
std::atomic<bool> is_armed{false};

[[noreturn]] void refuse(const std::string& specification) {
  throw Error(ErrorCode::kUsage, "HVDTUNE_FAILPOINT=" + specification +
                                     " is malformed; write NAME=kill|stop|reset@HIT:PATH");
}

Action action_of(const std::string& word, const std::string& specification) {
  if (word == "kill") return Action::kKill;
  if (word == "stop") return Action::kStop;
  if (word == "reset") return Action::kReset;
  refuse(specification);
}

// Disconnecting is what resets a connection whose descriptor another thread may be using.
void reset_connection(int fd) {
  sockaddr nowhere{};
  nowhere.sa_family = AF_UNSPEC;
  connect(fd, &nowhere, sizeof nowhere);
}

void reset_all() {
  for (int fd = 3; fd < kMostDescriptors; ++fd) {
    int listens = 0;
    int protocol = 0;
    socklen_t bytes = sizeof listens;
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0) continue;
    if (protocol != IPPROTO_TCP) continue;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes);
    if (listens == 0) reset_connection(fd);
  }
}

void note_time(const std::string& path) {
  const std::string text = std::to_string(now_ns());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
  close(fd);
}

}  // namespace

void arm_failpoint(const std::string& specification) {
  const size_t equals = specification.find('=');
  const size_t at = specification.find('@', equals);
  const size_t colon = specification.find(':', at);
  if (colon == std::string::npos) refuse(specification);
  Armed next;
  next.name = specification.substr(0, equals);
  next.action = action_of(specification.substr(equals + 1, at - equals - 1), specification);
  const char* end = specification.data() + colon;
  const auto read = std::from_chars(specification.data() + at + 1, end, next.hit);
  if (read.ec != std::errc() || read.ptr != end || next.hit == 0) refuse(specification);
  next.path = specification.substr(colon + 1);
  const std::lock_guard lock(mutex);
  armed = next;
  hits = 0;
  is_armed.store(true);
}

void reach_failpoint(const char* name, int fd) {
  if (!is_armed.load()) return;
  Action action{};
  {
    const std::lock_guard lock(mutex);
    if (armed.name != name || ++hits != armed.hit) return;
    is_armed.store(false);
    action = armed.action;
    note_time(armed.path);
  }
  if (action == Action::kKill) kill(getpid(), SIGKILL);
  // To this thread, which stops here then; of the process, another one might take it, and later.
  if (action == Action::kStop) raise(SIGSTOP);
  if (action == Action::kReset && fd >= 0) return reset_connection(fd);
  if (action == Action::kReset) reset_all();
}

}  // namespace hvdtune

#else

namespace hvdtune {

void arm_failpoint(const std::string& specification) {
  throw Error(ErrorCode::kUsage,
              "HVDTUNE_FAILPOINT=" + specification +
                  ": only test builds have failpoints; build with -DHVDTUNE_FAILPOINTS=ON");
}

}  // namespace hvdtune

#endif
