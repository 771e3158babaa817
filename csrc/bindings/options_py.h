// Options as Python hands them over.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "bindings/knobs_py.h"
#include "transport/mesh.h"

namespace hvdtune::bindings {

template <typename T>
T take(const pybind11::dict& options, const char* name, T fallback) {
  return options.contains(name) ? pybind11::cast<T>(options[name]) : fallback;
}

// Throws Error(kUsage) unless there are as many bytes as a key has.
pybind11::dict to_dict(const HostCosts& costs);
Key to_key(const std::string& bytes);
MeshOptions to_mesh_options(const pybind11::dict& given);

}  // namespace hvdtune::bindings
