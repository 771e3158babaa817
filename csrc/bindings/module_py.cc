#include <pybind11/pybind11.h>

#include "base/processors.h"
#include "bindings/errors.h"
#include "bindings/knobs_py.h"
#include "bindings/register.h"

PYBIND11_MODULE(_native, module) {
  module.doc() = "The core of hvdtune. Use it through hvdtune.core.";
  module.def("usable_processors", [] { return hvdtune::usable_processors(); });
  hvdtune::bindings::register_errors();
  hvdtune::bindings::register_knobs(module);
  hvdtune::bindings::register_mpi(module);
  hvdtune::bindings::register_gpu(module);
  hvdtune::bindings::register_pool(module);
  hvdtune::bindings::register_runtime(module);
  hvdtune::bindings::register_garbage(module);
  hvdtune::bindings::register_group(module);
  hvdtune::bindings::register_job_server(module);
}
