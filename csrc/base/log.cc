#include "base/log.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace hvdtune {

void log(LogLevel level, LogLevel threshold, int rank, std::string_view text) {
  if (level < threshold) return;
  constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
  std::string line = "hvdtune[" + std::to_string(rank) + "] ";
  line.append(kNames[static_cast<size_t>(level)]).append(": ").append(text);
  if (line.back() != '\n') line += '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

void end_while_written_to(int rank, std::string_view why) {
  log(LogLevel::kError, LogLevel::kError, rank,
      std::string(why) + "; it may still write to the memory of tensors, so this process exits");
  constexpr int kExitCode = 70;
  std::_Exit(kExitCode);
}

}  // namespace hvdtune
