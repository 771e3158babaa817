// Messages for a person, on standard error: "hvdtune[rank] level: text".
#pragma once

#include <string_view>

namespace hvdtune {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// One write(2) per message, so lines of several ranks do not mix. Callers pass their Runtime's
// level: there is no process-wide one.
void log(LogLevel level, LogLevel threshold, int rank, std::string_view text);

// Ends this process with exit code 70 (EX_SOFTWARE of sysexits.h) because its tensors may still be
// written to: their memory cannot be given back, and the caller must not wait without a limit.
[[noreturn]] void end_while_written_to(int rank, std::string_view why);

}  // namespace hvdtune
