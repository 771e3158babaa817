#include <pybind11/pybind11.h>

#include "base/status.h"
#include "bindings/errors.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

// Errors of a collective have the rank at fault and the tensor besides.
void translate(const Error& error) {
  const py::module_ errors = py::module_::import("hvdtune.errors");
  const py::object type = errors.attr(exception_of(error.code()));
  const bool of_collective =
      PyObject_IsSubclass(type.ptr(), errors.attr("CollectiveError").ptr()) == 1;
  const py::object value =
      of_collective ? type(error.what(), error.rank(), error.tensor()) : type(error.what());
  PyErr_SetObject(type.ptr(), value.ptr());
}

}  // namespace

void register_errors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      translate(error);
    }
  });
}

}  // namespace hvdtune::bindings
