#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <numeric>

#include "bindings/options_py.h"
#include "bindings/register.h"
#include "collective/allgather.h"
#include "collective/allreduce/allreduce.h"
#include "collective/alltoall.h"
#include "collective/broadcast.h"
#include "collective/group.h"
#include "collective/reducescatter.h"
#include "transport/backoff.h"
#include "transport/mesh.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

class Unobserved final : public Observer {
 public:
  bool enabled() const override { return false; }
  void phase(Phase, uint64_t, uint64_t, size_t, int) override {}
};

std::vector<int> all_ranks(const Mesh& mesh) {
  std::vector<int> ranks(static_cast<size_t>(mesh.topology.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// A mesh and its collectives with nothing above them: no negotiation, no timeline, nobody who
// watches the other ranks. All ranks must call the same functions in the same order.
class BareGroup {
 public:
  BareGroup(const MeshOptions& options, const Setting& setting)
      : setting_(setting),
        mesh_(connect_mesh(options, stop_)),
        group_(mesh_, all_ranks(mesh_), scratch_, stop_, observer_,
               spins_for(mesh_.topology.local_size)) {}

  void allreduce(uintptr_t input, uintptr_t output, size_t count, int dtype, int op,
                 double prescale, double postscale) {
    const Reduction reduction{to_enum<DType>(dtype, kDTypeCount, "dtype"),
                              to_enum<ReduceOp>(op, kReduceOpCount, "reduce operation"), prescale,
                              postscale, group_.size()};
    Payload payload;
    payload.add(source(input), target(output), count * size_of(reduction.dtype));
    const py::gil_scoped_release release;
    hvdtune::allreduce(group_, reduction, payload, setting_);
  }

  // `counts` are elements of dtype, one for each rank.
  void allgather(uintptr_t input, uintptr_t output, const std::vector<size_t>& counts, int dtype) {
    check_ranks(counts);
    const std::vector<size_t> bytes = scaled(counts, dtype);
    const py::gil_scoped_release release;
    hvdtune::allgather(group_, source(input), target(output), bytes, setting_);
  }

  void broadcast(int root, uintptr_t input, uintptr_t output, size_t count, int dtype) {
    const size_t bytes = scaled({count}, dtype).front();
    const py::gil_scoped_release release;
    hvdtune::broadcast(group_, root, source(input), target(output), bytes, setting_);
  }

  void alltoall(uintptr_t input, const std::vector<size_t>& send, uintptr_t output,
                const std::vector<size_t>& receive, int dtype) {
    check_ranks(send);
    check_ranks(receive);
    const std::vector<size_t> send_bytes = scaled(send, dtype);
    const std::vector<size_t> recv_bytes = scaled(receive, dtype);
    const py::gil_scoped_release release;
    hvdtune::alltoall(group_, source(input), send_bytes, target(output), recv_bytes);
  }

  void reducescatter(uintptr_t input, uintptr_t output, const std::vector<size_t>& counts,
                     int dtype, int op, double prescale, double postscale) {
    const Reduction reduction{to_enum<DType>(dtype, kDTypeCount, "dtype"),
                              to_enum<ReduceOp>(op, kReduceOpCount, "reduce operation"), prescale,
                              postscale, group_.size()};
    check_ranks(counts);
    const py::gil_scoped_release release;
    hvdtune::reducescatter(group_, reduction, source(input), target(output), counts, setting_);
  }

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  const std::shared_ptr<Pool>& pool() const { return mesh_.pool; }

 private:
  // Python passes memory as numbers.
  static const uint8_t* source(uintptr_t address) {
    return reinterpret_cast<const uint8_t*>(address);
  }
  static uint8_t* target(uintptr_t address) { return reinterpret_cast<uint8_t*>(address); }

  void check_ranks(const std::vector<size_t>& counts) const {
    if (counts.size() != static_cast<size_t>(group_.size())) {
      throw Error(ErrorCode::kUsage, std::to_string(counts.size()) + " counts for " +
                                         std::to_string(group_.size()) + " ranks");
    }
  }
  std::vector<size_t> scaled(std::vector<size_t> counts, int dtype) const {
    for (size_t& count : counts) count *= size_of(to_enum<DType>(dtype, kDTypeCount, "dtype"));
    return counts;
  }

  const Setting setting_;
  const StopSignal stop_;
  Unobserved observer_;
  Mesh mesh_;
  ScratchBuffers scratch_;
  Group group_;
};

std::unique_ptr<BareGroup> make_group(const py::dict& given) {
  const MeshOptions options = to_mesh_options(given);
  const Setting setting = given.contains("setting") ? to_setting(given["setting"]) : Setting{};
  const py::gil_scoped_release release;
  return std::make_unique<BareGroup>(options, setting);
}

}  // namespace

void register_group(py::module_& module) {
  py::class_<BareGroup>(module, "Group")
      .def(py::init(&make_group))
      .def_property_readonly("rank", &BareGroup::rank)
      .def_property_readonly("size", &BareGroup::size)
      .def("allocate_shared",
           [](const BareGroup& group, size_t bytes) { return group.pool()->allocate(bytes); })
      .def("allreduce", &BareGroup::allreduce, py::arg("input"), py::arg("output"),
           py::arg("count"), py::arg("dtype"), py::arg("op") = 0, py::arg("prescale") = 1.0,
           py::arg("postscale") = 1.0)
      .def("allgather", &BareGroup::allgather)
      .def("broadcast", &BareGroup::broadcast)
      .def("alltoall", &BareGroup::alltoall)
      .def("reducescatter", &BareGroup::reducescatter, py::arg("input"), py::arg("output"),
           py::arg("counts"), py::arg("dtype"), py::arg("op") = 0, py::arg("prescale") = 1.0,
           py::arg("postscale") = 1.0);
  module.def("dtype_number",
             [](const std::string& name) { return static_cast<int>(dtype_from_name(name)); });
}

}  // namespace hvdtune::bindings
