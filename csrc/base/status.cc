#include "base/status.h"

#include <system_error>

namespace hvdtune {

std::string system_message(const std::string& what, int error_number) {
  return what + ": " + std::generic_category().message(error_number);
}

}  // namespace hvdtune
