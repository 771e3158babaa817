#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings/gil.h"
#include "bindings/knobs_py.h"
#include "bindings/options_py.h"
#include "bindings/register.h"
#include "runtime/job_server.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

using NoGil = py::call_guard<GilRelease>;
using namespace py::literals;

struct ToDict {
  py::dict operator()(const JobFormed& formed) const {
    py::list ranks;
    for (size_t rank = 0; rank < formed.members.size(); ++rank) {
      const RankInfo& member = formed.members[rank];
      ranks.append(py::dict("rank"_a = rank, "host"_a = member.host, "pid"_a = member.pid));
    }
    return py::dict("type"_a = "formed", "ranks"_a = ranks);
  }
  py::dict operator()(const StepReport& report) const {
    return py::dict("type"_a = "step", "step"_a = report.step, "version"_a = report.version,
                    "durations_ns"_a = report.durations_ns, "t_ns"_a = report.end_ns);
  }
  py::dict operator()(const JobAdopted& adopted) const {
    return py::dict("type"_a = "adopted", "version"_a = adopted.version);
  }
  py::dict operator()(const JobLost& lost) const {
    return py::dict("type"_a = "lost", "rank"_a = lost.rank, "message"_a = lost.message);
  }
  py::dict operator()(const JobLeft& left) const {
    return py::dict("type"_a = "left", "rank"_a = left.rank);
  }
  py::dict operator()(const JobDeclared& declared) const {
    return py::dict("type"_a = "declared", "knobs"_a = declared.knobs);
  }
  py::dict operator()(const JobClosed&) const { return py::dict("type"_a = "closed"); }
};

std::unique_ptr<JobServer> make_server(const py::bytes& key, int size, const std::string& address,
                                       double start_timeout_s, uint32_t generation, uint16_t port) {
  JobServerOptions options;
  options.key = to_key(key);
  options.size = size;
  options.bind_address = address;
  options.generation = generation;
  options.port = port;
  options.start_timeout = to_nanoseconds(start_timeout_s);
  return std::make_unique<JobServer>(options);
}

py::object next_event(JobServer& server, double timeout_s) {
  std::optional<JobEvent> event;
  {
    const GilRelease release;
    event = server.next_event(to_nanoseconds(timeout_s));
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
           py::arg("generation") = 0, py::arg("port") = 0)
      .def_property_readonly("port", &JobServer::port)
      .def("next_event", &next_event, py::arg("timeout_s"))
      .def("propose", &propose, py::arg("version"), py::arg("setting"))
      .def("record", &order, py::arg("path"), py::arg("max_bytes"))
      .def("abort", &JobServer::abort, py::arg("why"), NoGil())
      .def("close", &JobServer::close, NoGil());
}

}  // namespace hvdtune::bindings
