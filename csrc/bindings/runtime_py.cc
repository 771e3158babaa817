#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "bindings/knobs_py.h"
#include "bindings/register.h"
#include "runtime/runtime.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

using Nanoseconds = std::chrono::nanoseconds;
using NoGil = py::call_guard<py::gil_scoped_release>;

Nanoseconds seconds(double value) { return Nanoseconds(static_cast<int64_t>(value * 1e9)); }

Key to_key(const std::string& bytes) {
  Key key{};
  if (bytes.size() != key.size()) {
    throw Error(ErrorCode::kUsage,
                "the job key must have 32 bytes, not " + std::to_string(bytes.size()));
  }
  std::memcpy(key.data(), bytes.data(), key.size());
  return key;
}

template <typename T>
T take(const py::dict& options, const char* name, T fallback) {
  return options.contains(name) ? py::cast<T>(options[name]) : fallback;
}

RuntimeOptions to_options(const py::dict& given) {
  RuntimeOptions options;
  options.mesh.rank = take(given, "rank", 0);
  options.mesh.size = take(given, "size", 1);
  options.mesh.host = take<std::string>(given, "host", "localhost");
  options.mesh.store_address = take<std::string>(given, "store_address", "127.0.0.1");
  options.mesh.store_port = static_cast<uint16_t>(take(given, "store_port", 0));
  options.mesh.generation = static_cast<uint32_t>(take(given, "generation", 0));
  options.mesh.start_timeout = seconds(take(given, "start_timeout_s", 30.0));
  options.mesh.shared_memory = take(given, "shared_memory", true);
  // Each slot holds one chunk.
  options.mesh.arena_slot_bytes = static_cast<size_t>(find_knob("chunk_bytes")->high);
  if (given.contains("key")) options.mesh.key = to_key(py::cast<py::bytes>(given["key"]));
  if (given.contains("setting")) options.setting = to_setting(given["setting"]);
  options.heartbeat_timeout = seconds(take(given, "heartbeat_timeout_s", 30.0));
  options.stall_warning = seconds(take(given, "stall_warning_s", 60.0));
  options.log_level = static_cast<LogLevel>(take(given, "log_level", 2));
  options.timeline_path = take<std::string>(given, "timeline_path", "");
  options.timeline_max_bytes = take<uint64_t>(given, "timeline_max_bytes", 0);
  options.version = take<std::string>(given, "version", "");
  return options;
}

std::unique_ptr<Runtime> make_runtime(const py::dict& given) {
  const RuntimeOptions options = to_options(given);
  const py::gil_scoped_release release;
  return std::make_unique<Runtime>(options);
}

template <typename E>
E to_enum(int value, int count, const char* what) {
  if (value < 0 || value >= count) {
    throw Error(ErrorCode::kUsage, std::string(what) + " " + std::to_string(value) + " is unknown");
  }
  return static_cast<E>(value);
}

// (op, name, input address, output address, shape, dtype name, reduce op, root, prescale,
// postscale)
using Row = std::tuple<int, std::string, uintptr_t, uintptr_t, std::vector<int64_t>, std::string,
                       int, int, double, double>;

std::vector<Handle> submit(Runtime& runtime, std::vector<Row> rows) {
  std::vector<Submission> submissions;
  for (Row& row : rows) {
    Submission submission;
    Request& request = submission.request;
    uintptr_t input = 0;
    uintptr_t output = 0;
    std::string dtype;
    int op = 0;
    int reduce_op = 0;
    std::tie(op, request.name, input, output, request.shape, dtype, reduce_op, request.root,
             request.prescale, request.postscale) = std::move(row);
    request.op = to_enum<OpType>(op, kOpTypeCount, "operation");
    request.reduce_op = to_enum<ReduceOp>(reduce_op, kReduceOpCount, "reduce operation");
    request.dtype = dtype_from_name(dtype);
    submission.input = reinterpret_cast<const void*>(input);
    submission.output = reinterpret_cast<void*>(output);
    submissions.push_back(std::move(submission));
  }
  const py::gil_scoped_release release;
  return runtime.submit(std::move(submissions));
}

bool wait(Runtime& runtime, Handle handle, double timeout_s) {
  return runtime.wait(handle, seconds(timeout_s));
}

std::vector<int64_t> gathered_shape(Operation& operation) { return operation.gathered_shape; }

size_t gathered_bytes(Operation& operation) {
  return size_of(operation.request.dtype) *
         static_cast<size_t>(element_count(operation.gathered_shape));
}

void copy_gathered(Operation& operation, uintptr_t to, size_t bytes) {
  const size_t have = gathered_bytes(operation);
  if (bytes != have) {
    throw Error(ErrorCode::kUsage,
                "the result has " + std::to_string(have) + " bytes, not " + std::to_string(bytes));
  }
  if (bytes > 0) std::memcpy(reinterpret_cast<void*>(to), operation.gathered.get(), bytes);
}

py::dict counts(Runtime& runtime) {
  const CycleCounts counts = runtime.counts();
  py::dict row;
  row["cycles"] = counts.cycles;
  row["tensors"] = counts.tensors;
  row["buckets"] = counts.buckets;
  row["cached_announcements"] = counts.cached_announcements;
  row["full_announcements"] = counts.full_announcements;
  row["timeline_dropped"] = runtime.timeline_dropped();
  return row;
}

py::dict topology(Runtime& runtime) {
  const Topology& place = runtime.topology();
  py::dict row;
  row["rank"] = place.rank;
  row["size"] = place.size;
  row["local_rank"] = place.local_rank;
  row["local_size"] = place.local_size;
  row["cross_rank"] = place.cross_rank;
  row["cross_size"] = place.cross_size;
  row["hosts"] = place.hosts;
  return row;
}

}  // namespace

void register_runtime(py::module_& module) {
  py::class_<Operation, std::shared_ptr<Operation>>(module, "Operation")
      .def("gathered_shape", &gathered_shape)
      .def("gathered_bytes", &gathered_bytes)
      .def("copy_gathered", &copy_gathered, NoGil());
  py::class_<Runtime>(module, "Runtime")
      .def(py::init(&make_runtime))
      .def("topology", &topology)
      .def("submit", &submit)
      .def("poll", &Runtime::poll)
      .def("wait", &wait, NoGil())
      .def("release", &Runtime::release)
      .def("mark_step", &Runtime::mark_step)
      .def("propose", [](Runtime& runtime,
                         const py::dict& values) { return runtime.propose(to_setting(values)); })
      .def("setting", [](Runtime& runtime) { return to_dict(runtime.setting()); })
      .def("version", &Runtime::version)
      .def("counts", &counts)
      .def("start_timeline", &Runtime::start_timeline, NoGil())
      .def("stop_timeline", &Runtime::stop_timeline, NoGil())
      .def("shutdown", &Runtime::shutdown, NoGil());
}

}  // namespace hvdtune::bindings
