#include <pybind11/pybind11.h>

#include "bindings/register.h"
#include "transport/shm/pool.h"

namespace py = pybind11;

namespace hvdtune::bindings {

// Whoever holds a view of the buffer holds the buffer, and with it the memory.
void register_pool(py::module_& module) {
  py::class_<Pool::Allocation>(module, "SharedBuffer", py::buffer_protocol())
      .def_buffer([](Pool::Allocation& block) {
        return py::buffer_info(block.data(), static_cast<py::ssize_t>(block.bytes()));
      })
      .def("__len__", &Pool::Allocation::bytes);
}

}  // namespace hvdtune::bindings
