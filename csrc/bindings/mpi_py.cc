#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/clock.h"
#include "bindings/gil.h"
#include "bindings/register.h"
#include "mpi/communicator.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

using NoGil = py::call_guard<GilRelease>;

MpiPatience within(double timeout_s) { return {Deadline::in(to_nanoseconds(timeout_s)), nullptr}; }

// `address` is where an MPI_Comm lies, 0 for MPI_COMM_WORLD.
std::shared_ptr<MpiCommunicator> duplicate(const std::shared_ptr<MpiLibrary>& library,
                                           uintptr_t address, double timeout_s) {
  return MpiCommunicator::duplicate(library, reinterpret_cast<const void*>(address),
                                    within(timeout_s));
}

std::shared_ptr<MpiCommunicator> of_world(const std::shared_ptr<MpiLibrary>& library,
                                          const std::vector<int>& ranks) {
  return MpiCommunicator::of_world(library, ranks);
}

std::pair<int, int> world_place(MpiLibrary& library) {
  int rank = 0;
  int size = 0;
  library.check(library.functions().place(nullptr, &rank, &size), "MPI_Comm_rank");
  return {rank, size};
}

py::bytes broadcast(MpiCommunicator& comm, const std::string& bytes, int root, double timeout_s) {
  std::string received;
  {
    const GilRelease release;
    received = comm.broadcast(bytes, root, within(timeout_s));
  }
  return received;
}

std::vector<std::string> gather(MpiCommunicator& comm, const std::string& text, double timeout_s) {
  return comm.gather(text, within(timeout_s));
}

}  // namespace

void register_mpi(py::module_& module) {
  py::class_<MpiLibrary, std::shared_ptr<MpiLibrary>>(module, "MpiLibrary")
      .def(py::init(&MpiLibrary::open), py::arg("plugin"))
      .def("version", &MpiLibrary::version)
      .def("initialized", &MpiLibrary::initialized)
      .def("finalized", &MpiLibrary::finalized)
      .def("initialize", &MpiLibrary::initialize, NoGil())
      .def("finalize", &MpiLibrary::finalize, NoGil())
      .def("threads", [](MpiLibrary& library) { return static_cast<int>(library.threads()); })
      .def("world_place", &world_place)
      .def("duplicate", &duplicate, py::arg("address"), py::arg("timeout_s"), NoGil())
      .def("of_world", &of_world, py::arg("ranks"), NoGil());
  py::class_<MpiCommunicator, std::shared_ptr<MpiCommunicator>>(module, "MpiCommunicator")
      .def_property_readonly("rank", &MpiCommunicator::rank)
      .def_property_readonly("size", &MpiCommunicator::size)
      .def("node", &MpiCommunicator::node, NoGil())
      .def("broadcast", &broadcast, py::arg("bytes"), py::arg("root"), py::arg("timeout_s"))
      .def("gather", &gather, py::arg("text"), py::arg("timeout_s"), NoGil());
}

}  // namespace hvdtune::bindings
