#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/status.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "device/driver.h"
#include "nccl/library.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

using namespace py::literals;

// What there is of CUDA and NCCL; "cuda_error" or "nccl_error" says in a sentence why it cannot be
// used. No GPU is given a context.
py::dict gpu_report(const std::string& cuda_library, const std::string& nccl_library) {
  py::dict report;
  try {
    const auto driver = CudaDriver::open(cuda_library);
    report["cuda_path"] = driver->path();
    report["cuda_version"] = driver->version();
    py::list names;
    for (int number = 0; number < driver->count(); ++number) names.append(driver->name_of(number));
    report["gpus"] = names;
  } catch (const Error& error) {
    report["cuda_error"] = error.what();
  }
  try {
    const auto nccl = NcclLibrary::open(nccl_library);
    report["nccl_path"] = nccl->path();
    report["nccl_version"] = nccl->version();
  } catch (const Error& error) {
    report["nccl_error"] = error.what();
  }
  return report;
}

// Why the libraries cannot be loaded, in a sentence; "" if they can. Initialises nothing.
std::string gpu_libraries_error(const std::string& cuda_library, const std::string& nccl_library) {
  try {
    CudaDriver::open(cuda_library);
    NcclLibrary::open(nccl_library);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

void register_gpu(py::module_& module) {
  module.def("gpu_libraries_error", &gpu_libraries_error, "cuda_library"_a, "nccl_library"_a);
  module.def("gpu_report", &gpu_report, "cuda_library"_a = "", "nccl_library"_a = "");
}

}  // namespace hvdtune::bindings
