#include "runtime/runtime.h"

#include <unistd.h>

#include <chrono>
#include <sstream>

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

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : options_(options),
      mesh_(connect_mesh(options.mesh, stop_)),
      cycle_lane_(recorder_.add_lane()),
      health_lane_(recorder_.add_lane()) {
  if (!options.timeline_path.empty()) {
    start_timeline(options.timeline_path, options.timeline_max_bytes);
  }
  health_ = std::make_unique<Health>(mesh_, options.heartbeat_timeout, stop_, health_lane_);
  const CycleOptions cycle{options.setting, options.stall_warning, options.log_level};
  cycle_ =
      std::make_unique<CycleThread>(mesh_, cycle, table_, *health_, stop_, recorder_, cycle_lane_);
}

Runtime::~Runtime() { shutdown(); }

void Runtime::check(const Submission& submission) const {
  const Request& request = submission.request;
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kUsage, "tensor \"" + request.name + "\": " + why, -1, request.name);
  };
  if (request.name.empty()) refuse("it has no name");
  if (!is_countable(request.shape)) refuse("a dimension is negative, or they are too large");
  if (request.op == OpType::kAllgather && request.shape.empty()) {
    refuse("allgather needs at least one dimension to concatenate along; reshape it to [1]");
  }
  if (request.op == OpType::kBroadcast &&
      (request.root < 0 || request.root >= mesh_.topology.size)) {
    refuse("root rank " + std::to_string(request.root) + " does not exist; there are " +
           std::to_string(mesh_.topology.size) + " ranks");
  }
  if (request.op == OpType::kAllreduce && request.dtype == DType::kBool) {
    if (request.reduce_op == ReduceOp::kAverage) refuse("bool has no average; use sum, min or max");
    if (request.prescale != 1.0 || request.postscale != 1.0) refuse("bool cannot be scaled");
  }
  const bool writes = request.op != OpType::kAllgather;
  if (bytes_of(request) > 0 && (!submission.input || (writes && !submission.output))) {
    refuse("it has no memory");
  }
}

std::vector<Handle> Runtime::submit(std::vector<Submission> submissions) {
  std::vector<Operation> operations;
  const uint64_t now = now_ns();
  for (Submission& submission : submissions) {
    check(submission);
    Operation operation;
    operation.announced_ns = now;
    operation.request = std::move(submission.request);
    operation.input = static_cast<const uint8_t*>(submission.input);
    operation.output = static_cast<uint8_t*>(submission.output);
    operations.push_back(std::move(operation));
  }
  std::vector<Handle> handles = table_.add(std::move(operations));
  cycle_->work_added();
  return handles;
}

bool Runtime::wait(Handle handle, std::chrono::nanoseconds time) {
  return table_.wait(handle, time, [this] { cycle_->caller_waits(); });
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
