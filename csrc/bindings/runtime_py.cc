#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/completion_queue.h"
#include "base/failpoint.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/knobs_py.h"
#include "bindings/options_py.h"
#include "bindings/register.h"
#include "collective/measure_costs.h"
#include "runtime/framework.h"
#include "runtime/runtime.h"
#include "runtime/submission.h"

namespace py = pybind11;

namespace hvdtune::bindings {
namespace {

using NoGil = py::call_guard<GilRelease>;
using namespace py::literals;

TimelineOptions to_timeline_options(const py::dict& given) {
  TimelineOptions options;
  options.path = take<std::string>(given, "timeline_path", "");
  options.max_bytes = take<uint64_t>(given, "timeline_max_bytes", 0);
  options.when_full = take(given, "timeline_stops", false) ? WhenFull::kStop : WhenFull::kRing;
  const StepWindow all;
  options.steps.first = take<uint64_t>(given, "timeline_first_step", all.first);
  options.steps.end = take<uint64_t>(given, "timeline_end_step", all.end);
  options.steps.every = take<uint64_t>(given, "timeline_every_step", all.every);
  if (options.steps.every == 0)
    throw Error(ErrorCode::kUsage, "timeline_every_step must be at least 1");
  return options;
}

// Without what only jobs that are recorded from the start have.
void start_timeline(Runtime& runtime, const std::string& path, uint64_t max_bytes) {
  TimelineOptions options;
  options.path = path;
  options.max_bytes = max_bytes;
  const GilRelease release;
  runtime.start_timeline(options);
}

GpuOptions to_gpu_options(const py::dict& given) {
  GpuOptions options;
  options.enabled = take<bool>(given, "gpu_operations", false);
  options.bits =
      take<std::string>(given, "gpu_bits", "nccl") == "exact" ? GpuBits::kExact : GpuBits::kNccl;
  options.cuda_library = take<std::string>(given, "cuda_library", "");
  options.nccl_library = take<std::string>(given, "nccl_library", "");
  return options;
}

RuntimeOptions to_options(const py::dict& given) {
  RuntimeOptions options;
  options.mesh = to_mesh_options(given);
  if (given.contains("setting")) options.setting = to_setting(given["setting"]);
  options.heartbeat_timeout = to_nanoseconds(take(given, "heartbeat_timeout_s", 2.0));
  options.hang.warning = to_nanoseconds(take(given, "hang_warning_s", 5.0));
  options.hang.abort = to_nanoseconds(take(given, "hang_abort_s", 600.0));
  options.hang.about = take<std::string>(given, "hang_about", "");
  options.hang.stack.signal = take(given, "stack_signal", 0);
  options.hang.stack.fd = take(given, "stack_fd", -1);
  const auto failpoint = take<std::string>(given, "failpoint", "");
  if (!failpoint.empty()) arm_failpoint(failpoint);
  options.log_level = static_cast<LogLevel>(take(given, "log_level", 2));
  options.timeline = to_timeline_options(given);
  options.version = take<std::string>(given, "version", "");
  options.launched = take(given, "launched", true);
  options.mpi = take<std::shared_ptr<MpiCommunicator>>(given, "mpi", nullptr);
  options.gpu = to_gpu_options(given);
  if (take(given, "refuses_after_join", false)) options.after_join = AfterJoin::kAllreduce;
  return options;
}

std::unique_ptr<Runtime> make_runtime(const py::dict& given) {
  const RuntimeOptions options = to_options(given);
  const GilRelease release;
  return std::make_unique<Runtime>(options);
}

py::list op_rows() {
  py::list rows;
  for (const OpRow& op : kOpTable) {
    rows.append(py::dict("name"_a = op.name, "event"_a = op.event, "reduces"_a = op.reduces,
                         "fuses"_a = op.fuses, "has_rows"_a = op.has_rows));
  }
  return rows;
}

void check_reduction(std::string_view op, std::string_view reduce_op) {
  const std::string flaw = flaw_of_reduction(op_named(op), reduce_op_named(reduce_op));
  if (!flaw.empty()) throw Error(ErrorCode::kUsage, flaw);
}

using Tensors = std::vector<std::pair<std::string, std::vector<int64_t>>>;

std::shared_ptr<Request> make_request(std::string_view op, std::string name, const Tensors& tensors,
                                      std::string_view reduce_op, int root, double prescale,
                                      double postscale, uint32_t process_set,
                                      std::vector<int64_t> splits, bool on_gpu) {
  auto request = std::make_shared<Request>();
  request->op = op_named(op);
  request->reduce_op = reduce_op_named(reduce_op);
  request->root = root;
  request->process_set = process_set;
  request->prescale = prescale;
  request->postscale = postscale;
  request->name = std::move(name);
  for (const auto& [dtype, shape] : tensors) {
    request->tensors.push_back({dtype_from_name(dtype), shape});
  }
  request->splits = std::move(splits);
  request->on_gpu = on_gpu;
  return request;
}

CudaStream to_stream(uintptr_t stream) { return reinterpret_cast<CudaStream>(stream); }

// Adds the handles to `handles`, which Python thus has before it runs a signal handler. Tensors on
// GPUs are all on `gpu`, and were made on `stream`. `expected_bytes`, for each output of an
// allgather or alltoall that has memory: see TensorMemory. `title`: see Submission.
void submit(Runtime& runtime, const std::vector<std::shared_ptr<Request>>& requests,
            const std::vector<uintptr_t>& inputs, const std::vector<uintptr_t>& outputs,
            py::list& handles, int gpu, uintptr_t stream, const std::vector<size_t>& expected_bytes,
            bool awaited, const std::string& title, bool patient) {
  std::vector<Submission> submissions;
  submissions.reserve(requests.size());
  size_t at = 0;
  for (const std::shared_ptr<Request>& request : requests) {
    const size_t count = request->tensors.size();
    if (inputs.size() - at < count || outputs.size() != inputs.size()) {
      throw Error(ErrorCode::kUsage, "the number of addresses differs from the number of tensors");
    }
    Submission& submission = submissions.emplace_back();
    submission.request = request;
    submission.gpu = {gpu, to_stream(stream)};
    submission.awaited = awaited;
    submission.patient = patient;
    submission.title = title;
    for (size_t i = 0; i < count; ++i, ++at) {
      submission.memory.push_back({reinterpret_cast<const uint8_t*>(inputs[at]),
                                   reinterpret_cast<uint8_t*>(outputs[at]),
                                   at < expected_bytes.size() ? expected_bytes[at] : 0});
    }
  }
  std::vector<Handle> given;
  {
    const GilRelease release;
    given = runtime.submit(std::move(submissions));
  }
  for (const Handle handle : given) handles.append(handle);
}

// See Runtime::wait_on_stream. False when time has passed before.
bool wait_on_stream(Runtime& runtime, const std::vector<Handle>& handles, uintptr_t stream,
                    double timeout_s) {
  const Deadline deadline = Deadline::in(to_nanoseconds(timeout_s));
  return std::ranges::all_of(handles, [&](Handle handle) {
    const uint64_t now = now_ns();
    const auto left = static_cast<int64_t>(deadline.at_ns() > now ? deadline.at_ns() - now : 0);
    return runtime.wait_on_stream(handle, to_stream(stream), std::chrono::nanoseconds(left));
  });
}

bool has_ended(Runtime& runtime, Handle handle) {
  try {
    return runtime.poll(handle);
  } catch (const Error&) {
    return true;
  }
}

// Ends the handles and sets them to 0 in the list; `operations`, if given, gets their operations.
// Python has all of it before it runs a signal handler.
void end_all(Runtime& runtime, const std::vector<Handle>& given, py::list& handles,
             std::optional<py::list>& operations) {
  for (size_t i = 0; i < given.size(); ++i) {
    const std::shared_ptr<Operation> operation = runtime.release(given[i]);
    if (operations) operations->append(operation);
    handles[i] = 0;
  }
}

// Returns false when time has passed before all have ended. Otherwise ends the handles as end_all
// does, then throws the first failure. Returns true, too, when another thread has ended them.
bool finish(Runtime& runtime, py::list& handles, double timeout_s,
            std::optional<py::list> operations) {
  const auto given = handles.cast<std::vector<Handle>>();
  if (std::ranges::count(given, 0) > 0) return true;
  std::optional<Error> failure;
  {
    const GilRelease release;
    const Deadline deadline = Deadline::in(to_nanoseconds(timeout_s));
    for (const Handle handle : given) {
      const uint64_t now = now_ns();
      const uint64_t left = deadline.at_ns() > now ? deadline.at_ns() - now : 0;
      try {
        if (!runtime.wait(handle, std::chrono::nanoseconds(static_cast<int64_t>(left)))) {
          return false;
        }
      } catch (const Error& error) {
        if (!failure) failure = error;
      }
    }
  }
  // While Python makes the exception a signal handler may raise another one, or another thread may
  // end the handles: until then nothing has.
  const py::object error = failure ? to_python(*failure) : py::none();
  if (handles.cast<std::vector<Handle>>() != given) return true;
  end_all(runtime, given, handles, operations);
  if (error.is_none()) return true;
  raise(error);
}

const Result& result_of(const Operation& operation, size_t index) {
  if (index >= operation.results.size()) {
    throw Error(ErrorCode::kUsage, "the operation has no result " + std::to_string(index));
  }
  return operation.results[index];
}

size_t result_bytes(const Operation& operation, size_t index) {
  const Result& result = result_of(operation, index);
  return bytes_of(TensorSpec{result.dtype, result.shape});
}

void copy_result(const Operation& operation, size_t index, uintptr_t to, size_t bytes) {
  const size_t have = result_bytes(operation, index);
  if (bytes != have) {
    throw Error(ErrorCode::kUsage,
                "the result has " + std::to_string(have) + " bytes, not " + std::to_string(bytes));
  }
  const Result& result = result_of(operation, index);
  if (result.gpu) throw Error(ErrorCode::kUsage, "the result is on a GPU; use copy_gpu_result");
  if (result.in_place)
    throw Error(ErrorCode::kUsage, "the result is already in the caller's memory");
  if (bytes > 0) std::memcpy(reinterpret_cast<void*>(to), result.bytes.get(), bytes);
}

py::dict process_sets(Runtime& runtime) {
  py::dict rows;
  for (const auto& [id, ranks] : runtime.process_sets()->all()) {
    rows[py::int_(id)] = py::cast(ranks);
  }
  return rows;
}

py::dict counts(Runtime& runtime) {
  const CycleCounts counts = runtime.counts();
  return py::dict("cycles"_a = counts.cycles, "tensors"_a = counts.tensors,
                  "buckets"_a = counts.buckets,
                  "cached_announcements"_a = counts.cached_announcements,
                  "full_announcements"_a = counts.full_announcements,
                  "messages_sent"_a = counts.traffic.messages_sent,
                  "messages_received"_a = counts.traffic.messages_received,
                  "bytes_sent"_a = counts.traffic.bytes_sent,
                  "bytes_received"_a = counts.traffic.bytes_received,
                  "timeline_dropped"_a = runtime.timeline_dropped());
}

py::dict topology(Runtime& runtime) {
  const Topology& place = runtime.topology();
  return py::dict("rank"_a = place.rank, "size"_a = place.size, "local_rank"_a = place.local_rank,
                  "local_size"_a = place.local_size, "cross_rank"_a = place.cross_rank,
                  "cross_size"_a = place.cross_size, "hosts"_a = place.hosts);
}

}  // namespace

void register_runtime(py::module_& module) {
  module.def("framework_api", &framework_api);
  module.def("default_host_costs", [] { return to_dict(HostCosts{}); });
  module.def("measure_host_costs", [] {
    HostCosts costs;
    {
      const py::gil_scoped_release release;
      costs = measure_host_costs();
    }
    return to_dict(costs);
  });
  module.def("op_table", &op_rows, "One dict per operation, in the order of their numbers.");
  module.def("reductions", [] { return kReduceOpNames; });
  module.def("check_reduction", &check_reduction);
  py::class_<Request, std::shared_ptr<Request>>(module, "Request")
      .def(py::init(&make_request), py::arg("op"), py::arg("name"), py::arg("tensors"),
           py::arg("reduce_op") = "sum", py::arg("root") = 0, py::arg("prescale") = 1.0,
           py::arg("postscale") = 1.0, py::arg("process_set") = kWorldSet,
           py::arg("splits") = std::vector<int64_t>{}, py::arg("on_gpu") = false)
      .def_readonly("name", &Request::name);
  py::class_<Operation, std::shared_ptr<Operation>>(module, "Operation")
      .def_readonly("numbers", &Operation::numbers)
      .def("result_shape", [](const Operation& operation,
                              size_t index) { return result_of(operation, index).shape; })
      .def("result_bytes", &result_bytes)
      .def("is_in_place", [](const Operation& operation,
                             size_t index) { return result_of(operation, index).in_place; })
      .def("copy_result", &copy_result, NoGil());
  py::class_<CompletionQueue, std::shared_ptr<CompletionQueue>>(module, "CompletionQueue")
      .def(py::init<>())
      .def("put", &CompletionQueue::put)
      .def(
          "take",
          [](CompletionQueue& queue, double timeout_s) {
            return queue.take(to_nanoseconds(timeout_s));
          },
          NoGil());
  py::class_<Runtime>(module, "Runtime")
      .def(py::init(&make_runtime))
      .def("topology", &topology)
      .def("submit", &submit, "requests"_a, "inputs"_a, "outputs"_a, "handles"_a, "gpu"_a = -1,
           "stream"_a = 0, "expected_bytes"_a = std::vector<size_t>{}, "awaited"_a = false,
           "title"_a = "", "patient"_a = false)
      .def("watch",
           [](Runtime& runtime, Handle handle, const std::shared_ptr<CompletionQueue>& queue,
              uint64_t token) { return runtime.watch(handle, [=] { queue->put(token); }); })
      .def("wait_on_stream", &wait_on_stream, NoGil())
      .def(
          "copy_gpu_result",
          [](Runtime& runtime, Operation& operation, size_t index, uintptr_t to, uintptr_t stream) {
            result_of(operation, index);
            runtime.copy_result(operation, index, reinterpret_cast<uint8_t*>(to),
                                to_stream(stream));
          })
      .def(
          "begin_capture",
          [](Runtime& runtime, double timeout_s) {
            return runtime.begin_capture(to_nanoseconds(timeout_s));
          },
          NoGil())
      .def(
          "end_capture",
          [](Runtime& runtime, double timeout_s) {
            return runtime.end_capture(to_nanoseconds(timeout_s));
          },
          NoGil())
      .def(
          "before_replay",
          [](Runtime& runtime, uintptr_t stream, double timeout_s) {
            return runtime.before_replay(to_stream(stream), to_nanoseconds(timeout_s));
          },
          NoGil())
      .def("after_replay",
           [](Runtime& runtime, uintptr_t stream) { runtime.after_replay(to_stream(stream)); })
      .def("check_gpu", &Runtime::check_gpu, NoGil())
      .def(
          "await_gpu",
          [](Runtime& runtime, double timeout_s) {
            return runtime.await_gpu(to_nanoseconds(timeout_s));
          },
          NoGil())
      .def("framework_job", &new_job)
      .def("has_ended", &has_ended)
      .def("finish", &finish, "handles"_a, "timeout_s"_a, "operations"_a = py::none())
      .def("note_blocked_threads", &Runtime::note_blocked_threads)
      .def("mark_step", &Runtime::mark_step, NoGil())
      .def("mark_span", &Runtime::mark_span)
      .def("propose", [](Runtime& runtime,
                         const py::dict& values) { return runtime.propose(to_setting(values)); })
      .def("setting", [](Runtime& runtime) { return to_dict(runtime.setting()); })
      .def("version", &Runtime::version)
      .def("declare", &Runtime::declare)
      .def("script_version", &Runtime::script_version)
      .def("script_values", [](Runtime& runtime) { return to_dict(runtime.script_values()); })
      .def("counts", &counts)
      .def("process_sets", &process_sets)
      .def("host_costs", [](Runtime& runtime) { return to_dict(runtime.host_costs()); })
      .def("has_measured_costs", &Runtime::has_measured_costs)
      .def("allocate_shared", &Runtime::allocate_shared, NoGil())
      .def("start_timeline", &start_timeline)
      .def("stop_timeline", &Runtime::stop_timeline, NoGil())
      .def("is_recording", &Runtime::is_recording)
      .def("has_lost_a_rank", &Runtime::has_lost_a_rank)
      .def("loss",
           [](const Runtime& runtime) {
             const std::optional<Error> loss = runtime.loss();
             return loss ? to_python(*loss) : py::none();
           })
      .def("shutdown", &Runtime::shutdown, NoGil());
}

}  // namespace hvdtune::bindings
