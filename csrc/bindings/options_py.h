// Options as Python hands them over, and how its numbers become enumerations.
#pragma once

#include <pybind11/pybind11.h>

#include <chrono>
#include <string>

#include "base/status.h"
#include "bindings/knobs_py.h"
#include "transport/mesh.h"

namespace hvdtune::bindings {

inline std::chrono::nanoseconds seconds(double value) {
  return std::chrono::nanoseconds(static_cast<int64_t>(value * 1e9));
}

template <typename T>
T take(const pybind11::dict& options, const char* name, T fallback) {
  return options.contains(name) ? pybind11::cast<T>(options[name]) : fallback;
}

// Throws Error(kUsage) when there is no such value.
template <typename E>
E to_enum(int value, int count, const char* what) {
  if (value < 0 || value >= count) {
    throw Error(ErrorCode::kUsage, std::string(what) + " " + std::to_string(value) + " is unknown");
  }
  return static_cast<E>(value);
}

MeshOptions to_mesh_options(const pybind11::dict& given);

}  // namespace hvdtune::bindings
