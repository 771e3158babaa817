// C++ errors as the Python types of hvdtune.errors.
#pragma once

namespace hvdtune::bindings {

void register_errors();

}  // namespace hvdtune::bindings
