#include <pybind11/pybind11.h>

#include "base/status.h"
#include "bindings/errors.h"

namespace py = pybind11;

namespace hvdtune::bindings {

py::object to_python(const Error& error) {
  const py::module_ errors = py::module_::import("hvdtune.errors");
  const py::object type = errors.attr(exception_of(error.code()));
  const bool of_collective =
      PyObject_IsSubclass(type.ptr(), errors.attr("CollectiveError").ptr()) == 1;
  return of_collective ? type(error.what(), error.rank(), error.tensor()) : type(error.what());
}

void raise(const py::object& error) {
  PyErr_SetObject(py::type::of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

void register_errors() {
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      try {
        raise(to_python(error));
      } catch (py::error_already_set& raised) {  // perhaps by a signal handler, meanwhile
        raised.restore();
      }
    }
  });
}

}  // namespace hvdtune::bindings
