#include "bindings/knobs_py.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>

#include "base/status.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

py::object typed(const Knob& knob, double value) {
  switch (knob.kind) {
    case KnobKind::kBool:
      return py::bool_(value != 0);
    case KnobKind::kInt:
      return py::int_(static_cast<int64_t>(value));
    case KnobKind::kFloat:
      return py::float_(value);
    case KnobKind::kCategory:
      return py::str(std::string(knob.choices[static_cast<size_t>(value)]));
  }
  return py::none();
}

// By KnobKind and KnobScope.
constexpr const char* kKinds[] = {"bool", "int", "float", "category"};
constexpr const char* kScopes[] = {"live", "reinit", "restart"};

py::list knob_rows() {
  py::list rows;
  const Setting defaults;
  for (const Knob& knob : knob_table()) {
    py::dict row;
    row["name"] = knob.name;
    row["unit"] = knob.unit;
    row["kind"] = kKinds[static_cast<size_t>(knob.kind)];
    if (knob.kind == KnobKind::kCategory) {
      row["low"] = 0;
      row["high"] = knob.choices.size() - 1;
      py::tuple choices(knob.choices.size());
      for (size_t i = 0; i < knob.choices.size(); ++i) choices[i] = knob.choices[i];
      row["choices"] = choices;
    } else {
      row["low"] = typed(knob, knob.low);
      row["high"] = typed(knob, knob.high);
    }
    row["log"] = knob.log_scale;
    row["default"] = typed(knob, knob.get(defaults));
    row["scope"] = kScopes[static_cast<size_t>(knob.scope)];
    row["min_hosts"] = knob.min_hosts;
    row["doc"] = knob.doc;
    rows.append(row);
  }
  return rows;
}

void add_to(py::dict& values, const std::vector<ScriptValue>& script) {
  if (script.empty()) return;
  const py::object loads = py::module_::import("json").attr("loads");
  for (const ScriptValue& each : script) values[py::str(each.name)] = loads(each.value);
}

}  // namespace

py::dict to_dict(const std::vector<ScriptValue>& script) {
  py::dict values;
  add_to(values, script);
  return values;
}

py::dict to_dict(const Setting& setting) {
  py::dict values;
  for (const Knob& knob : knob_table()) {
    values[py::str(std::string(knob.name))] = typed(knob, knob.get(setting));
  }
  add_to(values, setting.script);
  return values;
}

Setting to_setting(const py::dict& values) {
  Setting setting;
  for (const auto& [key, value] : values) {
    const std::string name = py::str(key);
    if (name.starts_with(kScriptPrefix)) {
      const py::object text = py::module_::import("json").attr("dumps")(value);
      setting.script.push_back({name, py::cast<std::string>(text)});
      continue;
    }
    try {
      const Knob* knob = find_knob(name);
      const bool named =
          knob != nullptr && knob->kind == KnobKind::kCategory && py::isinstance<py::str>(value);
      set_knob(setting, name,
               named ? choice_value(*knob, py::cast<std::string>(value)) : py::cast<double>(value));
    } catch (const py::cast_error&) {
      throw Error(ErrorCode::kUsage,
                  "knob " + name + " needs a number, not " + std::string(py::str(py::repr(value))));
    }
  }
  std::ranges::sort(setting.script, {}, &ScriptValue::name);
  return setting;
}

void register_knobs(py::module_& module) {
  module.def("knob_table", &knob_rows, "One dict per knob, in table order.");
}

}  // namespace hvdtune::bindings
