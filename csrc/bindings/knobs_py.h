// Settings as Python dicts, and the knob table.
#pragma once

#include <pybind11/pybind11.h>

#include "base/knob.h"

namespace hvdtune::bindings {

pybind11::dict to_dict(const std::vector<ScriptValue>& script);
pybind11::dict to_dict(const Setting& setting);
// Knobs that are absent keep their default; those of the script have values that JSON knows. Throws
// Error(kUsage).
Setting to_setting(const pybind11::dict& values);
void register_knobs(pybind11::module_& module);

}  // namespace hvdtune::bindings
