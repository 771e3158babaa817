#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace hvdtune {

const char* exception_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "UsageError";
    case ErrorCode::kRendezvous:
    case ErrorCode::kTimeout:
      return "RendezvousError";
    case ErrorCode::kRankLost:
      return "RankLostError";
    case ErrorCode::kMismatch:
      return "MismatchError";
    case ErrorCode::kShutdown:
      return "ShutdownError";
    case ErrorCode::kDuplicateName:
      return "DuplicateNameError";
    case ErrorCode::kHang:
      return "HangError";
    case ErrorCode::kInternal:
      break;
  }
  return "CollectiveError";
}

std::string system_message(const std::string& what, int error_number) {
  std::string text = what + ": " + std::generic_category().message(error_number);
  if (error_number == EMFILE) text += "; raise the limit of open files (ulimit -n)";
  return text;
}

Error system_failure(const std::string& what, int error_number) {
  return {ErrorCode::kInternal, system_message(what, error_number)};
}

}  // namespace hvdtune
