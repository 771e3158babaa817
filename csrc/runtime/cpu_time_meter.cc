#include "runtime/cpu_time_meter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <string_view>

namespace hvdtune {
namespace {

uint64_t ran_ns() {
  timespec ran{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  return static_cast<uint64_t>(ran.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(ran.tv_nsec);
}

// The second number of schedstat. The first, the time on a processor, is only as new as the last
// tick.
uint64_t waited_ns() {
  const int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  std::array<char, 96> text{};
  const ssize_t size = read(fd, text.data(), text.size());
  close(fd);
  const std::string_view numbers(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const size_t space = numbers.find(' ');
  uint64_t waited = 0;
  if (space != std::string_view::npos) {
    std::from_chars(numbers.data() + space + 1, numbers.data() + numbers.size(), waited);
  }
  return waited;
}

}  // namespace

std::optional<CpuTime> CpuTimeMeter::since_last() {
  const CpuTime now{ran_ns(), waited_ns()};
  const CpuTime before = last_;
  const bool same = thread_ == gettid();
  last_ = now;
  thread_ = gettid();
  if (!same) return std::nullopt;
  return CpuTime{now.ran_ns - before.ran_ns, now.waited_ns - before.waited_ns};
}

}  // namespace hvdtune
