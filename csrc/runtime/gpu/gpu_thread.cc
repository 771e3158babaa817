#include "runtime/gpu/gpu_thread.h"

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <future>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"

namespace hvdtune {
namespace {

// How often events are looked at: soon after something was put on the stream, then more seldom.
constexpr uint64_t kShortestPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 500'000;
// The same while graphs may be running.
constexpr uint64_t kGraphPauseNs = 20'000'000;
constexpr std::chrono::milliseconds kLookInterval{20};

}  // namespace

GpuThread::GpuThread(GpuOptions options, const GpuServices& services)
    : options_(std::move(options)),
      services_(services),
      driver_(CudaDriver::open(options_.cuda_library)),
      nccl_(NcclLibrary::open(options_.nccl_library)),
      gpu_(driver_, services_.local_rank),
      graphs_(gpu_),
      timeline_(services_.recorder, services_.events, gpu_),
      abort_(nccl_, services_.rank, options_.abort_timeout) {}

GpuThread::~GpuThread() { shut_down(); }

void GpuThread::begin() { thread_ = std::thread(&GpuThread::run, this); }

std::shared_ptr<GpuWork> GpuThread::prepare(const GpuPlace& where, const Request& request) {
  const std::shared_ptr<const Gpu>& gpu = gpu_.of_tensor(where.number).gpu;
  const Gpu::Scope scope(*gpu);
  auto work = std::make_shared<GpuWork>(gpu);
  work->in_graph = gpu->is_capturing(where.stream);
  if (work->in_graph) graphs_.check(request);
  work->ready.record(where.stream);
  return work;
}

void GpuThread::check_lease() {
  check();
  services_.lease.await(services_.stop);
  check();
}

void GpuThread::make_wait(CudaStream stream, const GpuWork& work) {
  const Gpu::Scope scope(*gpu_.get().gpu);
  driver_->check(driver_->wait_event(stream, work.done->get(), 0), "cuStreamWaitEvent");
}

void GpuThread::copy(std::shared_ptr<GpuMemory> result, uint8_t* to, size_t bytes,
                     CudaStream stream) {
  RankGpu::Resources& here = gpu_.get();
  const Gpu::Scope scope(*here.gpu);
  if (bytes > 0) {
    driver_->check(
        driver_->copy_within_device(cuda_pointer(to), cuda_pointer(result->get()), bytes, stream),
        "cuMemcpyDtoDAsync");
  }
  auto read = std::make_unique<GpuEvent>(here.gpu);
  read->record(stream);
  here.pool.keep(std::move(result), std::move(read));
}

std::shared_ptr<GpuMemory> GpuThread::take(size_t bytes) {
  const RelaxedCaptureMode relaxed(driver_);
  return gpu_.get().pool.take(bytes);
}

void GpuThread::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify();
}

NcclId GpuThread::make_id() {
  auto made = std::make_shared<std::promise<NcclId>>();
  std::future<NcclId> id = made->get_future();
  post([this, made] {
    NcclId fresh;
    const NcclResult result = nccl_->unique_id(&fresh);
    if (result != kNcclSuccess) {
      throw Error(ErrorCode::kInternal, "ncclGetUniqueId failed: " + nccl_->describe(result));
    }
    made->set_value(fresh);
  });
  while (id.wait_for(kLookInterval) != std::future_status::ready) check();
  check();  // a thread that has failed breaks its promise
  return id.get();
}

uint64_t GpuThread::enqueue(GpuTask task) {
  known_sets_.emplace(task.process_set, task.within_host);
  auto shared = std::make_shared<GpuTask>(std::move(task));
  post([this, shared] { start(std::move(*shared)); });
  return ++enqueued_;
}

void GpuThread::drop_set(uint32_t process_set) {
  for (const bool within_host : {false, true}) {
    const CommunicatorKey key{process_set, within_host};
    if (known_sets_.erase(key) == 0) continue;
    post([this, key] {
      const auto set = sets_.find(key);
      if (set == sets_.end()) return;
      leave(*set->second);
      sets_.erase(set);
      if (!key.second) graphs_.remove_set(key.first);
    });
  }
}

std::optional<Error> GpuThread::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void GpuThread::check() const {
  if (const auto failure = this->failure()) throw Error(*failure);
  if (services_.stop.raised()) throw Error(ErrorCode::kShutdown, "stopped");
}

void GpuThread::await(uint64_t task) {
  std::unique_lock lock(mutex_);
  while (completed_ < task) {
    if (failure_) throw Error(*failure_);
    if (services_.stop.raised()) throw Error(ErrorCode::kShutdown, "stopped");
    changed_.wait_for(lock, kLookInterval);
  }
}

void GpuThread::abandon() {
  wake_.notify();
  std::unique_lock lock(mutex_);
  // The thread bounds the time that this takes, unless it does not come back from a call.
  const auto time = options_.abort_timeout + std::chrono::seconds(1);
  if (!changed_.wait_for(lock, time, [this] { return ended_; })) {
    abort_.end_process("NCCL did not return from a call");
  }
}

void GpuThread::shut_down() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  wake_.notify();
  if (thread_.joinable()) thread_.join();
}

void GpuThread::take_jobs() {
  const std::lock_guard lock(mutex_);
  std::ranges::move(std::exchange(jobs_, {}), std::back_inserter(waiting_jobs_));
}

void GpuThread::run() {
  prctl(PR_SET_TIMERSLACK, 1);  // its pauses are shorter than the 50 us that the kernel may add
  try {
    for (;;) {
      turn();
      if (is_leaving() && waiting_jobs_.empty() && graphs_.has_replayed()) break;
    }
    for (auto& [number, set] : sets_) leave(*set);
  } catch (const Error& error) {
    end_with(error);
  } catch (const std::exception& error) {
    end_with(Error(ErrorCode::kInternal, error.what()));
  }
  // The GPU's things go before its context does.
  sets_.clear();
  timeline_.close();
  capture_stream_.reset();
  kernels_.reset();
  GraphOwners::release_dropped();
  relaxed_.reset();
  current_.reset();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void GpuThread::turn() {
  if (services_.stop.raised()) throw Error(ErrorCode::kShutdown, "stopped");
  take_jobs();
  bool moved = false;
  for (; !waiting_jobs_.empty() && flights_.size() < kMostFlights; moved = true) {
    const Job job = std::move(waiting_jobs_.front());
    waiting_jobs_.pop_front();
    job();
  }
  GraphOwners::release_dropped();
  bool in_graphs = false;
  for (const auto& [number, set] : sets_) {
    set->communicator().check_health();
    in_graphs = in_graphs || set->is_in_graphs();
  }
  moved = reap() || moved;
  pause_ns_ =
      moved ? kShortestPauseNs : std::clamp(2 * pause_ns_, kShortestPauseNs, kLongestPauseNs);
  // Nothing notifies this thread of the launch of a graph.
  if (flights_.empty()) pause_ns_ = in_graphs ? kGraphPauseNs : 0;
  sleep();
}

bool GpuThread::has_jobs() const {
  const std::lock_guard lock(mutex_);
  return !jobs_.empty();
}

// Whether shut_down() has been called, and the stream has nothing left to do.
bool GpuThread::is_leaving() const {
  const std::lock_guard lock(mutex_);
  return leaving_ && jobs_.empty() && flights_.empty();
}

// Until there is something to do; while something is, or may be, on the GPU, for a short time.
void GpuThread::sleep() {
  if (!waiting_jobs_.empty() && flights_.size() < kMostFlights) return;  // room was made just now
  if (has_jobs()) return;
  uint64_t pause_ns = pause_ns_;
  if (is_leaving()) {
    if (graphs_.has_replayed()) return;
    pause_ns = kGraphPauseNs;  // nor of the end of a launch
  }
  std::array<pollfd, 2> fds = {{{wake_.fd(), POLLIN, 0}, {services_.stop.fd(), POLLIN, 0}}};
  const timespec limit{0, static_cast<long>(pause_ns)};
  ppoll(fds.data(), fds.size(), pause_ns > 0 ? &limit : nullptr, nullptr);
  wake_.drain();
}

GpuCollectives& GpuThread::collectives_of(const GpuTask& task) {
  const CommunicatorKey key{task.process_set, task.within_host};
  const auto known = sets_.find(key);
  if (known != sets_.end()) return *known->second;
  if (!task.id) throw Error(ErrorCode::kInternal, "the NCCL id of a process set is missing");
  RankGpu::Resources& here = gpu_.get();
  if (!kernels_) kernels_ = std::make_shared<KernelLauncher>(here.gpu);
  const std::string name = "process set " + std::to_string(task.process_set) +
                           (task.within_host ? " within this host" : "");
  auto comm = std::make_unique<NcclCommunicator>(nccl_, *task.id, task.size, task.rank, name,
                                                 services_.stop, services_.lease);
  auto made = std::make_unique<GpuCollectives>(std::move(comm), here.gpu, here.stream.get(),
                                               here.pool, *kernels_, task.order, options_.bits);
  GpuCollectives& kept = *sets_.emplace(key, std::move(made)).first->second;
  kept.communicator().meet();
  if (!task.within_host) graphs_.add_set(task.process_set);
  return kept;
}

void GpuThread::start(GpuTask task) {
  FAILPOINT("gpu/start");
  services_.lease.await(services_.stop);
  note(task, GpuProgress::kQueued);
  RankGpu::Resources& here = gpu_.get();
  if (!current_) {
    current_.emplace(*here.gpu);
    relaxed_.emplace(driver_);
  }
  GpuCollectives& collectives = collectives_of(task);
  if (task.in_graph) return capture(std::move(task), collectives);
  const bool recorded = timeline_.begin(task);
  const auto timing = recorded ? GpuEvent::Timing::kOn : GpuEvent::Timing::kOff;
  GpuFlight flight{{}, std::make_shared<GpuEvent>(here.gpu, timing), now_ns(), nullptr};
  for (const auto& operation : task.operations) here.stream.wait_for(operation->gpu->ready);
  if (const auto replay = graphs_.take_replay()) here.stream.wait_for(*replay);
  if (recorded) {
    flight.begun = std::make_unique<GpuEvent>(here.gpu, timing);
    flight.begun->record(here.stream.get());
  }
  for (const GpuCall& call : task.calls) collectives.enqueue(call);
  flight.done->record(here.stream.get());
  graphs_.note_task(flight.done);
  if (task.completes) {
    for (const auto& operation : task.operations) operation->gpu->done = flight.done;
    services_.table.note_enqueued(task.operations);
  }
  flight.task = std::move(task);
  flights_.push_back(std::move(flight));
  FAILPOINT("gpu/started");
}

// The stream takes part in the capture from the first wait on, and until the capture ends.
void GpuThread::capture(GpuTask task, GpuCollectives& collectives) {
  RankGpu::Resources& here = gpu_.get();
  if (!capture_stream_) capture_stream_ = std::make_unique<GpuStream>(here.gpu);
  const CudaStream stream = capture_stream_->get();
  for (const auto& operation : task.operations) capture_stream_->wait_for(operation->gpu->ready);
  GraphOwners::Owners owners{kernels_};
  for (const GpuCall& call : task.calls) collectives.capture(call, stream, owners);
  GraphOwners::keep(*driver_, stream, std::move(owners));
  const auto done = std::make_shared<GpuEvent>(here.gpu);
  done->record(stream);
  for (const auto& operation : task.operations) operation->gpu->done = done;
  services_.work_counter.moved_by_gpu(task.process_set);
  services_.table.note_enqueued(task.operations);
  services_.table.complete(task.operations);
  end_task();
}

void GpuThread::end_task() {
  const std::lock_guard lock(mutex_);
  ++completed_;
  changed_.notify_all();
}

// Completes what the stream has done. Returns whether it completed anything.
bool GpuThread::reap() {
  bool any = false;
  while (!flights_.empty() && flights_.front().done->has_passed()) {
    // The GPU continues while the process is stopped: a rank that the others may have given up
    // waits for a message from them before it reports success.
    if (!services_.lease.is_held()) return any;
    const GpuFlight flight = std::move(flights_.front());
    flights_.pop_front();
    complete(flight);
    any = true;
  }
  timeline_.record_waits();
  if (!flights_.empty()) note_next();
  return any;
}

void GpuThread::complete(const GpuFlight& flight) {
  services_.check_member();
  if (services_.stop.raised()) throw Error(ErrorCode::kShutdown, "stopped");
  services_.work_counter.moved_by_gpu(flight.task.process_set);
  timeline_.record(flight);
  if (flight.task.completes) services_.table.complete(flight.task.operations);
  end_task();
}

// A GPU that still computes the tensors is busy, which is no hang of hvdtune's.
void GpuThread::note_next() {
  const GpuTask& next = flights_.front().task;
  const bool is_made = std::ranges::all_of(
      next.operations, [](const auto& operation) { return operation->gpu->ready.has_passed(); });
  if (!is_made) services_.work_counter.moved_by_gpu(next.process_set);
  note(next, is_made ? GpuProgress::kRuns : GpuProgress::kWaits);
}

void GpuThread::note(const GpuTask& task, GpuProgress progress) {
  for (const auto& operation : task.operations) operation->gpu->progress = progress;
}

// NCCL ends no communicator that a graph has operations of: it goes when the graph does.
void GpuThread::leave(GpuCollectives& collectives) {
  GraphOwners::release_dropped();
  if (collectives.is_in_graphs()) {
    collectives.communicator().leave_behind_graphs();
  } else {
    collectives.communicator().leave();
  }
}

void GpuThread::end_with(const Error& error) {
  // If no other rank is reported as lost, this one is at fault: only it has seen the failure.
  const bool blames_nobody = error.code() == ErrorCode::kRankLost && error.rank() < 0;
  const std::string self = std::to_string(services_.rank);
  {
    const std::lock_guard lock(mutex_);
    failure_ = blames_nobody ? Error(ErrorCode::kRankLost,
                                     "rank " + self + " failed: " + error.what(), services_.rank)
                             : error;
    changed_.notify_all();
  }
  services_.stop.raise();
  abort_all();
  const std::lock_guard lock(mutex_);
  jobs_.clear();
  waiting_jobs_.clear();
  flights_.clear();
}

void GpuThread::abort_all() {
  GraphOwners::release_dropped();
  GpuAbort::Sets sets;
  for (const auto& [key, set] : sets_) sets.push_back(set.get());
  const RankGpu::Resources* used = gpu_.find();
  abort_.run(sets, used == nullptr ? nullptr : &used->stream);
}

}  // namespace hvdtune
