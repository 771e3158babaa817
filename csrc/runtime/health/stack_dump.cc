#include "runtime/health/stack_dump.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <utility>

namespace hvdtune {
namespace {

constexpr size_t kInnermost = 10;
constexpr size_t kMostOfScript = 5;

bool is_of_library(const std::string& line) {
  return line.find("-packages/") != std::string::npos ||
         line.find("/lib/python") != std::string::npos;
}

}  // namespace

void StackDump::begin() {
  seen_bytes_ = 0;
  if (source_.fd < 0) return;
  if (ftruncate(source_.fd, 0) != 0 || lseek(source_.fd, 0, SEEK_SET) != 0) return;
  // The main thread's number is the process's.
  syscall(SYS_tgkill, getpid(), getpid(), source_.signal);
}

// The file has no end mark: it is complete when it has stopped growing.
bool StackDump::complete() {
  if (source_.fd < 0) return true;
  struct stat facts{};
  if (fstat(source_.fd, &facts) != 0) return true;
  const bool same = facts.st_size > 0 && facts.st_size == seen_bytes_;
  seen_bytes_ = facts.st_size;
  return same;
}

std::string StackDump::text() const {
  if (source_.fd < 0) return {};
  std::array<char, 8192> bytes;
  const ssize_t got = pread(source_.fd, bytes.data(), bytes.size(), 0);
  if (got <= 0) return {};
  std::istringstream lines(std::string(bytes.data(), static_cast<size_t>(got)));
  std::string text;
  std::string line;
  // The first line is a title.
  std::getline(lines, line);
  // Further out only the user's own frames are kept: a framework can have dozens.
  size_t taken = 0;
  bool skipped = false;
  while (taken < kInnermost + kMostOfScript && std::getline(lines, line)) {
    if (taken >= kInnermost && is_of_library(line)) {
      skipped = true;
      continue;
    }
    if (std::exchange(skipped, false)) text += "    ...\n";
    text += "  " + line + "\n";
    ++taken;
  }
  return text;
}

}  // namespace hvdtune
