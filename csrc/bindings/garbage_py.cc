#include <pybind11/pybind11.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "bindings/register.h"
#include "runtime/runtime.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

// A callback for gc.callbacks, where Python discards exceptions. Handlers of signals run between
// the instructions of Python code, so what they raise would be lost in a callback in Python; none
// runs in this one.
py::cpp_function collection_watcher(const py::object& owner, const std::string& name,
                                    uint64_t shortest_ns) {
  Runtime& runtime = owner.cast<Runtime&>();
  const auto began_ns = std::make_shared<uint64_t>(0);
  const pid_t process = getpid();
  return py::cpp_function(
      [=, &runtime, owner = owner](const std::string& phase, const py::object&) {
        if (phase == "start") {
          *began_ns = now_ns();
          return;
        }
        const uint64_t end_ns = now_ns();
        // In a forked child the runtime is the parent's.
        if (*began_ns == 0 || end_ns - *began_ns < shortest_ns || getpid() != process) return;
        runtime.mark_span(name, *began_ns, end_ns);
      });
}

}  // namespace

void register_garbage(py::module_& module) {
  module.def("collection_watcher", &collection_watcher, py::arg("runtime"), py::arg("name"),
             py::arg("shortest_ns"));
}

}  // namespace hvdtune::bindings
