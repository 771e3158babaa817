// Messages for a person, on standard error: "hvdtune[rank] level: text".
#pragma once

#include <string_view>

namespace hvdtune {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// One write(2) per message, so lines of several ranks do not mix. Callers pass their Runtime's
// level: there is no process-wide one.
void log(LogLevel level, LogLevel threshold, int rank, std::string_view text);

}  // namespace hvdtune
