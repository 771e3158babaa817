#include "runtime/stack_dump.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <sstream>

namespace hvdtune {
namespace {

constexpr int kMostLines = 10;

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
  for (int i = 0; i < kMostLines && std::getline(lines, line); ++i) text += "  " + line + "\n";
  return text;
}

}  // namespace hvdtune
