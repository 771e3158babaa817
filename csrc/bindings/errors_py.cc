#include <pybind11/pybind11.h>

#include "base/status.h"
#include "bindings/errors.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

struct PythonType {
  const char* name;
  bool has_rank_and_tensor;
};

PythonType type_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return {"UsageError", false};
    case ErrorCode::kRendezvous:
    case ErrorCode::kTimeout:
      return {"RendezvousError", false};
    case ErrorCode::kRankLost:
      return {"RankLostError", true};
    case ErrorCode::kMismatch:
      return {"MismatchError", true};
    case ErrorCode::kShutdown:
      return {"ShutdownError", true};
    case ErrorCode::kHang:
      return {"HangError", true};
    case ErrorCode::kDuplicateName:
      return {"DuplicateNameError", true};
    case ErrorCode::kInternal:
      return {"CollectiveError", true};
  }
  return {"CollectiveError", true};
}

void translate(const Error& error) {
  const PythonType type = type_of(error.code());
  const py::object cls = py::module_::import("hvdtune.errors").attr(type.name);
  const py::object value = type.has_rank_and_tensor
                               ? cls(error.what(), error.rank(), error.tensor())
                               : cls(error.what());
  PyErr_SetObject(cls.ptr(), value.ptr());
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
