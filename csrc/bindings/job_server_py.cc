#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "bindings/knobs_py.h"
#include "bindings/register.h"
#include "runtime/job_server.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

using NoGil = py::call_guard<py::gil_scoped_release>;

py::dict typed(const char* type) {
  py::dict row;
  row["type"] = type;
  return row;
}

struct ToDict {
  py::dict operator()(const JobFormed& formed) const {
    py::list ranks;
    for (size_t rank = 0; rank < formed.members.size(); ++rank) {
      py::dict row;
      row["rank"] = rank;
      row["host"] = formed.members[rank].host;
      row["pid"] = formed.members[rank].pid;
      ranks.append(row);
    }
    py::dict row = typed("formed");
    row["ranks"] = ranks;
    return row;
  }
  py::dict operator()(const StepReport& report) const {
    py::dict row = typed("step");
    row["step"] = report.step;
    row["version"] = report.version;
    row["durations_ns"] = report.durations_ns;
    row["t_ns"] = report.end_ns;
    return row;
  }
  py::dict operator()(const JobAdopted& adopted) const {
    py::dict row = typed("adopted");
    row["version"] = adopted.version;
    return row;
  }
  py::dict operator()(const JobLost& lost) const {
    py::dict row = typed("lost");
    row["rank"] = lost.rank;
    row["message"] = lost.message;
    return row;
  }
  py::dict operator()(const JobLeft& left) const {
    py::dict row = typed("left");
    row["rank"] = left.rank;
    return row;
  }
  py::dict operator()(const JobClosed&) const { return typed("closed"); }
};

std::unique_ptr<JobServer> make_server(const py::bytes& key, int size, const std::string& address,
                                       double start_timeout_s, uint32_t generation) {
  JobServerOptions options;
  const std::string raw = key;
  if (raw.size() != options.key.size()) {
    throw Error(ErrorCode::kUsage,
                "the job key must have 32 bytes, not " + std::to_string(raw.size()));
  }
  std::memcpy(options.key.data(), raw.data(), raw.size());
  options.size = size;
  options.bind_address = address;
  options.generation = generation;
  options.start_timeout = std::chrono::nanoseconds(static_cast<int64_t>(start_timeout_s * 1e9));
  return std::make_unique<JobServer>(options);
}

py::object next_event(JobServer& server, double timeout_s) {
  std::optional<JobEvent> event;
  {
    const py::gil_scoped_release release;
    event = server.next_event(std::chrono::nanoseconds(static_cast<int64_t>(timeout_s * 1e9)));
  }
  if (!event) return py::none();
  return std::visit(ToDict(), *event);
}

void propose(JobServer& server, uint32_t version, const py::dict& values) {
  server.propose({version, to_setting(values)});
}

void order(JobServer& server, const std::string& path, uint64_t max_bytes) {
  server.order({!path.empty(), path, max_bytes});
}

}  // namespace

void register_job_server(py::module_& module) {
  py::class_<JobServer>(module, "JobServer")
      .def(py::init(&make_server), py::arg("key"), py::arg("size"),
           py::arg("bind_host") = "127.0.0.1", py::arg("start_timeout_s") = 30.0,
           py::arg("generation") = 0)
      .def_property_readonly("port", &JobServer::port)
      .def("next_event", &next_event, py::arg("timeout_s"))
      .def("propose", &propose, py::arg("version"), py::arg("setting"))
      .def("record", &order, py::arg("path"), py::arg("max_bytes"))
      .def("abort", &JobServer::abort, py::arg("why"), NoGil())
      .def("close", &JobServer::close, NoGil());
}

}  // namespace hvdtune::bindings
