#include "runtime/runtime.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "base/processors.h"
#include "negotiate/validate.h"
#include "runtime/submission.h"

namespace hvdtune {
namespace {

constexpr size_t kShownNameBytes = 40;
constexpr std::chrono::nanoseconds kTimeoutAfterLoss = std::chrono::milliseconds(200);
constexpr std::chrono::microseconds kLookForReplay{200};

// Names come from users.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

// Hosts with the same id have the same clock, whatever they are called.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

MeshOptions mesh_options(const RuntimeOptions& options) {
  MeshOptions mesh = options.mesh;
  mesh.silence_timeout = options.heartbeat_timeout;
  mesh.channels = static_cast<int>(options.setting.channels);
  return mesh;
}

std::string memory_error(const Submission& submission) {
  const Request& request = *submission.request;
  const bool gives_memory = !row_of(request.op).is_ragged;
  if (submission.memory.size() != request.tensors.size()) {
    return "the number of tensors differs from the number of buffers";
  }
  for (size_t i = 0; i < request.tensors.size(); ++i) {
    const TensorMemory& memory = submission.memory[i];
    const bool has = memory.input != nullptr && (memory.output != nullptr || !gives_memory);
    if (bytes_of(request.tensors[i]) > 0 && !has) return "its input or output memory is missing";
  }
  return {};
}

[[noreturn]] void refuse_name(const std::string& name) {
  const std::string begin = name.substr(0, kShownNameBytes);
  throw Error(ErrorCode::kUsage,
              "the name of a tensor may have at most " + std::to_string(kMostNameBytes) +
                  " bytes; \"" + begin + "...\" has " + std::to_string(name.size()),
              -1, begin);
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : options_(options),
      mesh_(connect_mesh(mesh_options(options), stop_)),
      cycle_events_(recorder_.add_buffer()),
      health_events_(recorder_.add_buffer()),
      gpu_events_(recorder_.add_buffer()),
      user_threads_(recorder_) {
  if (!options.timeline.path.empty()) start_timeline(options.timeline);
  if (!options.launched) mesh_.job.reset();
  if (options.mpi) backends_ = std::make_unique<MpiBackendSource>(options.mpi, stop_);
  const Topology& place = mesh_.topology;
  hang_detector_ =
      std::make_unique<HangDetector>(place.rank, place.size, options.hang, table_, work_counter_,
                                     [this] { return cycle_->process_sets()->all(); });
  const HealthOptions health{options.heartbeat_timeout, options.log_level};
  health_ = std::make_unique<Health>(mesh_, health, stop_, lease_, health_events_, *hang_detector_);
  if (options.gpu.enabled) gpu_ = std::make_unique<GpuThread>(options.gpu, gpu_services());
  const CycleOptions cycle{options.setting, options.log_level, backends_.get(),
                           [this](const TimelineOrder& order) { return apply_order(order); },
                           options.after_join};
  const Services services{mesh_,         table_,    *health_,      stop_,     lease_,
                          work_counter_, recorder_, cycle_events_, gpu_.get()};
  cycle_ = std::make_unique<CycleThread>(services, cycle);
  if (gpu_) gpu_->begin();
  health_->start();
}

Runtime::~Runtime() {
  guard_->close();
  shutdown();
}

void Runtime::settle(Submission& submission, const ProcessSets& sets) const {
  const std::shared_ptr<const Request>& request = submission.request;
  if (request->name.size() > kMostNameBytes) refuse_name(request->name);
  std::string why = flaw_of(*request);
  const std::vector<int>* ranks = sets.find(request->process_set);
  if (request->name.empty()) {
    why = "it has no name";
  } else if (ranks == nullptr) {
    why = "process set " + std::to_string(request->process_set) + " does not exist";
  } else if (!std::ranges::count(*ranks, topology().rank)) {
    why = "rank " + std::to_string(topology().rank) + " is not in process set " +
          std::to_string(request->process_set) + " (" + describe(RankMask(*ranks)) + ")";
  } else if (why.empty()) {
    fill_splits(submission.request, ranks->size());
    why = flaw_for_set(*request, *ranks, topology().size);
  }
  if (why.empty()) why = memory_error(submission);
  if (why.empty()) return;
  throw Error(ErrorCode::kUsage, "tensor \"" + request->name + "\": " + why, -1, request->name);
}

std::vector<Handle> Runtime::submit(std::vector<Submission> submissions) {
  return add(std::move(submissions), nullptr);
}

void Runtime::submit(Submission submission, OnEnd on_end) {
  inflight_.started();
  const auto goes_on = [this, told = std::make_shared<std::atomic_flag>()] {
    if (!told->test_and_set()) end_of_submitted();
  };
  if (submission.on_enqueued) {
    submission.on_enqueued = [goes_on, tell = std::move(submission.on_enqueued)](
                                 const std::shared_ptr<Operation>& operation) {
      goes_on();
      tell(operation);
    };
  }
  try {
    std::vector<Submission> one;
    one.push_back(std::move(submission));
    add(std::move(one),
        [goes_on, on_end = std::move(on_end)](const Operation& operation, const Error* error) {
          goes_on();
          on_end(operation, error);
        });
  } catch (...) {
    end_of_submitted();
    throw;
  }
}

void Runtime::end_of_submitted() {
  const uint64_t begin = inflight_.ended();
  if (begin != 0 && user_threads_.enabled()) user_threads_.end_wait(begin, now_ns());
}

void Runtime::await_submitted() {
  const uint64_t now = now_ns();
  if (inflight_.begin(now) && user_threads_.enabled()) user_threads_.begin_wait(now);
  table_.await_all();
  cycle_->wake_for_callers();
}

std::vector<Handle> Runtime::add(std::vector<Submission> submissions, const OnEnd& on_end) {
  std::vector<Operation> operations;
  operations.reserve(submissions.size());
  const uint64_t now = now_ns();
  const std::shared_ptr<const ProcessSets> sets = process_sets();
  for (Submission& submission : submissions) {
    settle(submission, *sets);
    Operation operation;
    operation.announced_ns = now;
    operation.gpu = prepare_gpu(submission);
    if (operation.gpu && operation.gpu->in_graph) {
      auto captured = std::make_shared<Request>(*submission.request);
      captured->in_graph = true;
      submission.request = std::move(captured);
    }
    operation.request = std::move(submission.request);
    operation.memory = std::move(submission.memory);
    operation.awaited = submission.awaited;
    operation.patient = submission.patient;
    operation.title = std::move(submission.title);
    operation.on_enqueued = std::move(submission.on_enqueued);
    operation.on_end = on_end;
    operations.push_back(std::move(operation));
  }
  std::vector<Handle> handles = table_.add(std::move(operations));
  cycle_->work_added();
  return handles;
}

GpuServices Runtime::gpu_services() {
  const Topology& place = mesh_.topology;
  const auto check_member = [this] {
    if (mesh_.arena) mesh_.arena->check_not_abandoned();
  };
  return {place.rank,    place.local_rank, stop_,       lease_,      table_,
          work_counter_, recorder_,        gpu_events_, check_member};
}

// Null for tensors in the host's memory.
std::shared_ptr<GpuWork> Runtime::prepare_gpu(const Submission& submission) const {
  const Request& request = *submission.request;
  if (!request.on_gpu) return nullptr;
  const std::string subject = "tensor \"" + request.name + "\": ";
  if (!gpu_) {
    throw Error(ErrorCode::kUsage,
                subject +
                    "it is on a GPU, but this job supports only tensors in host memory; set "
                    "HVDTUNE_GPU_OPERATIONS=nccl",
                -1, request.name);
  }
  if (request.reduce_op == ReduceOp::kAdasum && row_of(request.op).reduces) {
    throw Error(ErrorCode::kUsage,
                subject + "Adasum is not supported on GPUs; copy the tensor to host memory", -1,
                request.name);
  }
  if (submission.gpu.number < 0) {
    throw Error(ErrorCode::kUsage, subject + "the number of its GPU is unknown", -1, request.name);
  }
  try {
    return gpu_->prepare(submission.gpu, request);
  } catch (const Error& error) {
    throw Error(error.code(), subject + error.what(), error.rank(), request.name);
  }
}

bool Runtime::wait_on_stream(Handle handle, CudaStream stream, std::chrono::nanoseconds time) {
  const std::shared_ptr<Operation> operation = table_.operation_of(handle);
  // The stream may have nothing left to do long before the operation is enqueued.
  if (operation->gpu) gpu_->note_wait(stream, operation->gpu);
  if (!wait(handle, true, time)) return false;
  make_wait(*operation, stream);
  return true;
}

void Runtime::make_wait(const Operation& operation, CudaStream stream) {
  if (!operation.gpu) return;
  gpu_->note_wait(stream, operation.gpu);
  gpu_->make_wait(stream, *operation.gpu);
}

bool Runtime::begin_capture(std::chrono::nanoseconds time) {
  if (!table_.wait_none_for_gpu(time)) return false;
  require_gpu().graphs().begin_capture();
  return true;
}

bool Runtime::end_capture(std::chrono::nanoseconds time) {
  if (!table_.wait_none_for_gpu(time)) return false;
  require_gpu().graphs().end_capture();
  return true;
}

bool Runtime::before_replay(CudaStream stream, std::chrono::nanoseconds time) {
  if (!table_.wait_none_for_gpu(time)) return false;
  check_gpu();
  require_gpu().graphs().before_replay(stream);
  return true;
}

void Runtime::after_replay(CudaStream stream) { require_gpu().graphs().after_replay(stream); }

// After a failure of the GPU's thread, the cycle thread closes the table with an error that names
// the rank at fault.
void Runtime::check_gpu() {
  table_.check_open(std::chrono::nanoseconds(0));
  try {
    require_gpu().check_lease();
  } catch (const Error&) {
    table_.check_open(options_.gpu.abort_timeout + std::chrono::seconds(1));
    throw;
  }
}

bool Runtime::await_gpu(std::chrono::nanoseconds time) {
  if (!gpu_) return true;
  const Deadline deadline = Deadline::in(time);
  if (!table_.wait_gpu_done(time)) return false;
  while (!gpu_->graphs().has_replayed()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(kLookForReplay);
  }
  check_gpu();
  return true;
}

GpuThread& Runtime::require_gpu() const {
  if (!gpu_) throw Error(ErrorCode::kUsage, "GPU operations are disabled in this job");
  return *gpu_;
}

void Runtime::copy_result(Operation& operation, size_t index, uint8_t* to, CudaStream stream) {
  Result& result = operation.results.at(index);
  if (!result.gpu) throw Error(ErrorCode::kUsage, "the result is not on a GPU");
  const size_t bytes = bytes_of(TensorSpec{result.dtype, result.shape});
  gpu_->copy(result.gpu, to, bytes, stream);
}

bool Runtime::wait(Handle handle, std::chrono::nanoseconds time) {
  return wait(handle, false, time);
}

bool Runtime::wait(Handle handle, bool enqueued, std::chrono::nanoseconds time) {
  const Deadline deadline = Deadline::in(time);
  const uint64_t begin = user_threads_.enabled() ? now_ns() : 0;
  if (begin != 0) user_threads_.begin_wait(begin);
  const auto record = [&] {
    if (begin == 0) return;
    const auto kind = enqueued ? EventKind::kEnqueueWait : EventKind::kBlocked;
    user_threads_.end_wait(begin, now_ns(), kind);
  };
  const auto on_block = [&](const std::function<bool()>& has_ended) {
    cycle_->progress_for_caller(has_ended, deadline);
  };
  try {
    const bool done = enqueued ? table_.wait_enqueued(handle, time, on_block)
                               : table_.wait(handle, time, on_block);
    record();
    return done;
  } catch (const Error&) {
    // The operation has failed, or another thread has released its handle meanwhile: the caller
    // has waited all the same.
    record();
    throw;
  }
}

std::string Runtime::metadata(const TimelineOptions& options) const {
  using std::chrono::duration_cast;
  using std::chrono::nanoseconds;
  const auto unix_ns =
      duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const Topology& place = mesh_.topology;
  std::ostringstream text;
  text << "{\"rank\": " << place.rank << ", \"size\": " << place.size
       << ", \"local_rank\": " << place.local_rank << ", \"cross_rank\": " << place.cross_rank
       << ", \"host\": " << quoted(options_.mesh.host) << ", \"boot_id\": " << quoted(boot_id())
       << ", \"processors\": " << usable_processors() << ", \"pid\": " << getpid()
       << ", \"version\": " << quoted(options_.version) << ", \"clock\": \"CLOCK_MONOTONIC\""
       << ", \"monotonic_ns\": " << now_ns() << ", \"unix_ns\": " << unix_ns
       << ", \"max_bytes\": " << options.max_bytes;
  if (!options.steps.has_all()) {
    text << ", \"first_step\": " << options.steps.first << ", \"every\": " << options.steps.every;
    if (options.steps.end != StepWindow{}.end) text << ", \"end_step\": " << options.steps.end;
  }
  text << ", \"start_setting\": " << to_json(options_.setting) << "}";
  return text.str();
}

RecorderOptions Runtime::recording(const TimelineOptions& options) const {
  RecorderOptions made;
  made.path = options.path;
  made.max_bytes = options.max_bytes;
  made.when_full = options.when_full;
  made.steps = options.steps;
  made.metadata = metadata(options);
  return made;
}

void Runtime::start_timeline(const TimelineOptions& options) {
  recorder_.start(recording(options));
}

void Runtime::stop_timeline() {
  const std::string error = recorder_.stop();
  if (!error.empty()) log(LogLevel::kWarning, options_.log_level, topology().rank, error);
}

std::string Runtime::apply_order(const TimelineOrder& order) {
  if (!order.record) {
    recorder_.cancel();
    return {};
  }
  TimelineOptions options;
  options.path = order.path;
  options.max_bytes = order.max_bytes;
  const size_t at = options.path.find("%r");
  if (at != std::string::npos) options.path.replace(at, 2, std::to_string(topology().rank));
  return recorder_.request(recording(options));
}

void Runtime::shutdown() {
  if (cycle_) cycle_->shut_down();
  if (gpu_) gpu_->shut_down();
  if (health_) health_->shut_down();
  if (cycle_ && health_ && !std::exchange(is_shut_down_, true)) {
    await_delivery([this] { return undelivered_bytes(); }, delivery_timeout());
  }
  stop_timeline();
}

size_t Runtime::undelivered_bytes() const {
  size_t bytes = cycle_->undelivered_bytes() + health_->undelivered_bytes();
  for (const auto& link : mesh_.links) bytes += link ? link->undelivered_bytes() : 0;
  return bytes;
}

// After a loss some ranks never acknowledge, and the survivors may be about to restart.
std::chrono::nanoseconds Runtime::delivery_timeout() const {
  return has_lost_a_rank() ? std::min(kTimeoutAfterLoss, options_.heartbeat_timeout)
                           : options_.heartbeat_timeout;
}

}  // namespace hvdtune
