#include "violations.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace fake_gpu {
namespace {

constexpr uint64_t kPrintedOfAKind = 20;

struct Found {
  std::mutex mutex;
  std::map<std::string, uint64_t, std::less<>> counts;
  std::string last;
};

// Never destroyed: threads of streams outlive main.
Found& found() {
  static Found* const all = new Found;
  return *all;
}

void append_to_report(const std::string& line) {
  const char* path = std::getenv("FAKE_GPU_REPORT");
  if (path == nullptr) return;
  const int file = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return note("cannot write to FAKE_GPU_REPORT=" + std::string(path));
  // One write, so that lines of several processes do not mix.
  if (::write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    note("wrote only a part of a line to " + std::string(path));
  }
  ::close(file);
}

}  // namespace

void note(const std::string& sentence) {
  std::fprintf(stderr, "fake GPU: %s\n", sentence.c_str());
  std::fflush(stderr);
}

void violate(std::string_view kind, const std::string& sentence) {
  Found& all = found();
  const std::lock_guard lock(all.mutex);
  const uint64_t count = ++all.counts[std::string(kind)];
  all.last = sentence;
  if (count <= kPrintedOfAKind) note(std::string(kind) + ": " + sentence);
  append_to_report(std::string(kind) + ": " + sentence + "\n");
}

uint64_t violations_of(std::string_view kind) {
  Found& all = found();
  const std::lock_guard lock(all.mutex);
  uint64_t count = 0;
  for (const auto& [name, times] : all.counts) {
    if (kind.empty() || name == kind) count += times;
  }
  return count;
}

const char* last_violation() {
  static thread_local std::string copy;
  Found& all = found();
  const std::lock_guard lock(all.mutex);
  copy = all.last;
  return copy.c_str();
}

void forget_violations() {
  Found& all = found();
  const std::lock_guard lock(all.mutex);
  all.counts.clear();
  all.last.clear();
}

}  // namespace fake_gpu
