#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace hvdtune {

std::string system_message(const std::string& what, int error_number) {
  std::string text = what + ": " + std::generic_category().message(error_number);
  if (error_number == EMFILE) text += "; raise this process's limit of open files (ulimit -n)";
  return text;
}

}  // namespace hvdtune
