// C++ errors as the Python types of hvdtune.errors.
#pragma once

#include <pybind11/pybind11.h>

#include "base/status.h"

namespace hvdtune::bindings {

// An exception, which is not raised. Errors of a collective have the rank at fault and the tensor
// besides.
pybind11::object to_python(const Error& error);
// Raises what to_python() has made.
[[noreturn]] void raise(const pybind11::object& error);
void register_errors();

}  // namespace hvdtune::bindings
