#include "bindings/options_py.h"

#include <cstring>

#include "collective/measure_costs.h"

namespace py = pybind11;

namespace hvdtune::bindings {

namespace {

// Throws Error(kUsage) naming a cost that is missing or not positive.
HostCosts to_host_costs(const py::dict& given) {
  HostCosts costs;
  for (const HostCostField& field : kHostCostFields) {
    const double value = take(given, field.name.data(), 0.0);
    if (!(value > 0 && value < 1e15)) {
      throw Error(ErrorCode::kUsage,
                  "host_costs: " + std::string(field.name) + " must be a positive number");
    }
    costs.*field.value = value;
  }
  return costs;
}

}  // namespace

py::dict to_dict(const HostCosts& costs) {
  py::dict values;
  for (const HostCostField& field : kHostCostFields) {
    values[py::str(field.name.data(), field.name.size())] = costs.*field.value;
  }
  return values;
}

Key to_key(const std::string& bytes) {
  Key key{};
  if (bytes.size() != key.size()) {
    throw Error(ErrorCode::kUsage,
                "the job key must have 32 bytes, not " + std::to_string(bytes.size()));
  }
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

MeshOptions to_mesh_options(const py::dict& given) {
  MeshOptions options;
  options.rank = take(given, "rank", 0);
  options.size = take(given, "size", 1);
  options.host = take<std::string>(given, "host", "localhost");
  options.bind_address = take<std::string>(given, "bind_address", "");
  options.store_address = take<std::string>(given, "store_address", "127.0.0.1");
  options.store_port = static_cast<uint16_t>(take(given, "store_port", 0));
  options.generation = static_cast<uint32_t>(take(given, "generation", 0));
  options.start_timeout = to_nanoseconds(take(given, "start_timeout_s", 30.0));
  options.shared_memory = take(given, "shared_memory", true);
  options.control_fanout = take(given, "control_fanout", options.control_fanout);
  // Each slot holds one chunk.
  options.arena_slot_bytes = static_cast<size_t>(find_knob("chunk_bytes")->high);
  if (given.contains("host_costs")) {
    options.costs = to_host_costs(py::cast<py::dict>(given["host_costs"]));
    options.only_costs_decide =
        given.contains("only_costs_decide") && py::cast<bool>(given["only_costs_decide"]);
  }
  options.measure_costs = &measure_host_costs;
  if (given.contains("key")) options.key = to_key(py::cast<py::bytes>(given["key"]));
  return options;
}

}  // namespace hvdtune::bindings
