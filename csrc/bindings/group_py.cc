#include <pybind11/pybind11.h>

#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "bindings/gil.h"
#include "bindings/options_py.h"
#include "bindings/register.h"
#include "collective/allreduce/allreduce.h"
#include "collective/group.h"
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

// A mesh and its allreduce with nothing above them: no negotiation, no timeline, nobody who watches
// the other ranks. For measuring the collective alone.
class BareGroup {
 public:
  explicit BareGroup(const MeshOptions& options)
      : mesh_(connect_mesh(options, stop_)),
        group_(mesh_, all_ranks(mesh_), scratch_, stop_, observer_, spins_for(mesh_)) {}

  // Sums `count` elements at the address over all ranks, in place. All ranks must call.
  void allreduce(uintptr_t address, size_t count, std::string_view dtype) {
    const Reduction sum{.dtype = dtype_from_name(dtype), .ranks = group_.size()};
    auto* const data = reinterpret_cast<uint8_t*>(address);
    Payload payload;
    payload.add(data, data, count * size_of(sum.dtype));
    const GilRelease release;
    hvdtune::allreduce(group_, sum, payload, Setting{});
  }

  std::unique_ptr<Pool::Allocation> allocate_shared(size_t bytes) const {
    return mesh_.pool->allocate(bytes);
  }

 private:
  const StopSignal stop_;
  Unobserved observer_;
  Mesh mesh_;
  ScratchBuffers scratch_;
  Group group_;
};

std::unique_ptr<BareGroup> make_group(const py::dict& given) {
  const MeshOptions options = to_mesh_options(given);
  const GilRelease release;
  return std::make_unique<BareGroup>(options);
}

}  // namespace

void register_group(py::module_& module) {
  py::class_<BareGroup>(module, "Group")
      .def(py::init(&make_group))
      .def("allocate_shared", &BareGroup::allocate_shared)
      .def("allreduce", &BareGroup::allreduce, py::arg("address"), py::arg("count"),
           py::arg("dtype"));
}

}  // namespace hvdtune::bindings
