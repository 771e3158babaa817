// The one error type of the core.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace hvdtune {

enum class ErrorCode {
  kUsage,          // the caller's argument is wrong
  kRendezvous,     // the job could not be formed
  kRankLost,       // rank() exited, was killed or stopped answering
  kMismatch,       // ranks disagree about tensor()
  kShutdown,       // the runtime was shut down
  kDuplicateName,  // tensor() is already in flight
  kHang,           // nothing moved for the abort time; rank() is why, -1 if none is
  kTimeout,        // a deadline passed; transports raise it, callers translate it
  kInternal,       // a broken invariant or protocol violation
};

// The class of hvdtune.errors that stands for it.
const char* exception_of(ErrorCode code);

// Thrown everywhere; bindings map code() to a Python exception type.
class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, int rank = -1, std::string tensor = {})
      : code_(code), message_(std::move(message)), rank_(rank), tensor_(std::move(tensor)) {}

  const char* what() const noexcept override { return message_.c_str(); }
  ErrorCode code() const { return code_; }
  int rank() const { return rank_; }
  const std::string& tensor() const { return tensor_; }

 private:
  ErrorCode code_;
  std::string message_;
  int rank_;
  std::string tensor_;
};

// Error text for a failed system call: "what: strerror(errno)".
std::string system_message(const std::string& what, int error_number);
// Error(kInternal) with that text.
Error system_failure(const std::string& what, int error_number);

}  // namespace hvdtune
