#include "runtime/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "negotiate/validate.h"
#include "runtime/submission.h"

namespace hvdtune {
namespace {

// Names come from users.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

MeshOptions mesh_options(const RuntimeOptions& options) {
  MeshOptions mesh = options.mesh;
  mesh.silence_timeout = options.heartbeat_timeout;
  mesh.channels = static_cast<int>(options.setting.channels);
  return mesh;
}

std::string flaw_of_memory(const Submission& submission) {
  const Request& request = *submission.request;
  const bool gives_memory = request.op != OpType::kAllgather && request.op != OpType::kAlltoall;
  if (submission.memory.size() != request.tensors.size()) {
    return "tensors and memory differ in number";
  }
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorMemory& memory = submission.memory[i];
    const bool has = memory.input != nullptr && (memory.output != nullptr || !gives_memory);
    if (bytes_of(request.tensors[i]) > 0 && !has) return "it has no memory";
  }
  return {};
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : options_(options),
      mesh_(connect_mesh(mesh_options(options), stop_)),
      cycle_lane_(recorder_.add_lane()),
      health_lane_(recorder_.add_lane()) {
  if (!options.timeline_path.empty()) {
    start_timeline(options.timeline_path, options.timeline_max_bytes);
  }
  if (!options.launched) mesh_.job.reset();
  if (options.mpi) backends_ = std::make_unique<MpiBackendSource>(options.mpi, stop_);
  const Topology& place = mesh_.topology;
  explainer_ = std::make_unique<Explainer>(place.rank, place.size, options.hang, table_, progress_,
                                           [this] { return cycle_->process_sets()->all(); });
  const HealthOptions health{options.heartbeat_timeout, options.log_level};
  health_ = std::make_unique<Health>(mesh_, health, stop_, health_lane_, *explainer_);
  const CycleOptions cycle{options.setting, options.log_level, backends_.get()};
  cycle_ = std::make_unique<CycleThread>(mesh_, cycle, table_, *health_, stop_, progress_,
                                         recorder_, cycle_lane_);
  health_->start();
}

Runtime::~Runtime() { shutdown(); }

void Runtime::check(const Submission& submission, const ProcessSets& sets) const {
  const Request& request = *submission.request;
  std::string why = flaw_of(request);
  const std::vector<int>* ranks = sets.find(request.process_set);
  if (request.name.empty()) {
    why = "it has no name";
  } else if (ranks == nullptr) {
    why = "there is no process set " + std::to_string(request.process_set);
  } else if (!std::ranges::count(*ranks, topology().rank)) {
    why = "rank " + std::to_string(topology().rank) + " is not in process set " +
          std::to_string(request.process_set) + " (" + describe(RankMask(*ranks)) + ")";
  } else if (why.empty()) {
    why = flaw_for_set(request, *ranks, topology().size);
  }
  if (why.empty()) why = flaw_of_memory(submission);
  if (why.empty()) return;
  throw Error(ErrorCode::kUsage, "tensor \"" + request.name + "\": " + why, -1, request.name);
}

std::vector<Handle> Runtime::submit(std::vector<Submission> submissions) {
  std::vector<Operation> operations;
  operations.reserve(submissions.size());
  const uint64_t now = now_ns();
  const std::shared_ptr<const ProcessSets> sets = process_sets();
  for (Submission& submission : submissions) {
    check(submission, *sets);
    Operation operation;
    operation.announced_ns = now;
    operation.request = std::move(submission.request);
    operation.memory = std::move(submission.memory);
    operations.push_back(std::move(operation));
  }
  std::vector<Handle> handles = table_.add(std::move(operations));
  cycle_->work_added();
  return handles;
}

bool Runtime::wait(Handle handle, std::chrono::nanoseconds time) {
  const Deadline deadline = Deadline::in(time);
  return table_.wait(handle, time, [&](const std::function<bool()>& has_ended) {
    cycle_->caller_waits(has_ended, deadline);
  });
}

std::string Runtime::metadata() const {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const auto unix_ns =
      duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::ostringstream text;
  text << "{\"rank\": " << mesh_.topology.rank << ", \"size\": " << mesh_.topology.size
       << ", \"host\": " << quoted(options_.mesh.host) << ", \"pid\": " << getpid()
       << ", \"version\": " << quoted(options_.version) << ", \"monotonic_ns\": " << now_ns()
       << ", \"unix_ns\": " << unix_ns << ", \"start_setting\": " << to_json(options_.setting)
       << "}";
  return text.str();
}

void Runtime::start_timeline(const std::string& path, uint64_t max_bytes) {
  RecorderOptions options;
  options.path = path;
  options.max_bytes = max_bytes;
  options.metadata = metadata();
  recorder_.start(options);
}

void Runtime::stop_timeline() { recorder_.stop(); }

void Runtime::shutdown() {
  if (cycle_) cycle_->leave();
  if (health_) health_->leave();
  recorder_.stop();
}

}  // namespace hvdtune
