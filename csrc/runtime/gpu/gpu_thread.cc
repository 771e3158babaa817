#include "runtime/gpu/gpu_thread.h"

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/log.h"

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
      nccl_(NcclLibrary::open(options_.nccl_library)) {}

GpuThread::~GpuThread() { shut_down(); }

void GpuThread::begin() { thread_ = std::thread(&GpuThread::run, this); }

GpuThread::Place& GpuThread::place(int number) {
  const std::lock_guard lock(mutex_);
  if (!place_) {
    // A rank that has joined has no tensor that would say which.
    const int count = driver_->count();
    if (count == 0) throw Error(ErrorCode::kUsage, "this process sees no GPU");
    const int chosen = number >= 0 ? number : services_.local_rank % count;
    place_ = std::make_unique<Place>(std::make_shared<const Gpu>(driver_, chosen));
  }
  if (number >= 0 && number != place_->gpu->number()) {
    throw Error(ErrorCode::kUsage, "it is on GPU " + std::to_string(number) +
                                       ", but this rank's first tensor was on GPU " +
                                       std::to_string(place_->gpu->number()) +
                                       "; a rank uses one GPU");
  }
  return *place_;
}

std::shared_ptr<GpuWork> GpuThread::prepare(const GpuPlace& where, const Request& request) {
  const std::shared_ptr<const Gpu>& gpu = place(where.number).gpu;
  const Gpu::Scope scope(*gpu);
  int capturing = 0;
  driver_->check(driver_->is_capturing(where.stream, &capturing), "cuStreamIsCapturing");
  auto work = std::make_shared<GpuWork>(gpu);
  work->in_graph = capturing != 0;
  if (work->in_graph) check_can_be_captured(request);
  work->ready.record(where.stream);
  return work;
}

void GpuThread::check_can_be_captured(const Request& request) {
  const std::string captured = "its stream is being captured into a CUDA graph";
  const std::lock_guard lock(mutex_);
  if (!capturing_) {
    throw Error(ErrorCode::kUsage,
                captured +
                    ", which would hide failures when the graph is launched; in PyTorch, use "
                    "hvdtune.torch.CUDAGraph instead of torch.cuda.CUDAGraph");
  }
  if (row_of(request.op).is_ragged) {
    throw Error(ErrorCode::kUsage, captured + ", but the size of the result of " +
                                       std::string(name_of(request.op)) +
                                       " is known only when it runs; call it outside of the "
                                       "capture");
  }
  if (!met_sets_.contains(request.process_set)) {
    throw Error(ErrorCode::kUsage,
                captured +
                    ", but its process set has no NCCL communicator yet; before the capture, run "
                    "the same code once with hierarchical_allreduce off");
  }
}

void GpuThread::begin_capture() {
  const std::lock_guard lock(mutex_);
  if (capturing_) {
    throw Error(ErrorCode::kUsage,
                "another CUDA graph is being captured; capture one graph at a time");
  }
  capturing_ = true;
}

void GpuThread::end_capture() {
  const std::lock_guard lock(mutex_);
  capturing_ = false;
}

void GpuThread::check_lease() {
  check();
  services_.lease.await(services_.stop);
  check();
}

void GpuThread::before_replay(CudaStream stream) {
  std::shared_ptr<GpuEvent> last;
  {
    const std::lock_guard lock(mutex_);
    last = last_done_;
  }
  if (!last) return;
  const Gpu::Scope scope(*place(-1).gpu);
  driver_->check(driver_->wait_event(stream, last->get(), 0), "cuStreamWaitEvent");
}

void GpuThread::after_replay(CudaStream stream) {
  auto event = std::make_shared<GpuEvent>(place(-1).gpu);
  event->record(stream);
  const std::lock_guard lock(mutex_);
  last_replay_ = replayed_ = std::move(event);
}

// Whether the stream is on its way to the wait or there already, only the event knows.
void GpuThread::note_wait(CudaStream stream, const std::shared_ptr<GpuWork>& work) {
  if (!services_.recorder.enabled() || work->in_graph) return;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(work->is_awaited, true)) return;
  }
  const std::shared_ptr<const Gpu>& gpu = place(-1).gpu;
  const Gpu::Scope scope(*gpu);
  int capturing = 0;
  driver_->check(driver_->is_capturing(stream, &capturing), "cuStreamIsCapturing");
  if (capturing != 0) return;
  auto begun = std::make_unique<GpuEvent>(gpu, GpuEvent::Timing::kOn);
  begun->record(stream);
  const std::lock_guard lock(mutex_);
  stream_waits_.push_back({std::move(begun), work});
}

void GpuThread::make_wait(CudaStream stream, const GpuWork& work) {
  const Gpu::Scope scope(*place(-1).gpu);
  driver_->check(driver_->wait_event(stream, work.done->get(), 0), "cuStreamWaitEvent");
}

void GpuThread::copy(std::shared_ptr<GpuMemory> result, uint8_t* to, size_t bytes,
                     CudaStream stream) {
  Place& here = place(-1);
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
  return place(-1).pool.take(bytes);
}

void GpuThread::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  wake_.notify();
}

bool GpuThread::has_replayed() const {
  const std::lock_guard lock(mutex_);
  return !last_replay_ || last_replay_->has_passed();
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
      if (key.second) return;
      const std::lock_guard lock(mutex_);
      met_sets_.erase(key.first);
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
    give_up("NCCL did not return from a call");
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
      const std::lock_guard lock(mutex_);
      const bool is_done = jobs_.empty() && waiting_jobs_.empty() && flights_.empty();
      if (leaving_ && is_done && (!last_replay_ || last_replay_->has_passed())) break;
    }
    for (auto& [number, set] : sets_) leave(*set);
  } catch (const Error& error) {
    end_with(error);
  } catch (const std::exception& error) {
    end_with(Error(ErrorCode::kInternal, error.what()));
  }
  // The GPU's things go before its context does.
  sets_.clear();
  clock_.reset();
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
  // Nobody says here when a graph is launched.
  if (flights_.empty()) pause_ns_ = in_graphs ? kGraphPauseNs : 0;
  sleep();
}

// Until there is something to do; while something is, or may be, on the GPU, for a short time.
void GpuThread::sleep() {
  if (!waiting_jobs_.empty() && flights_.size() < kMostFlights) return;  // room was made just now
  {
    const std::lock_guard lock(mutex_);
    if (!jobs_.empty() || (leaving_ && flights_.empty() && !last_replay_)) return;
  }
  std::array<pollfd, 2> fds = {{{wake_.fd(), POLLIN, 0}, {services_.stop.fd(), POLLIN, 0}}};
  const timespec limit{0, static_cast<long>(pause_ns_)};
  ppoll(fds.data(), fds.size(), pause_ns_ > 0 ? &limit : nullptr, nullptr);
  wake_.drain();
}

GpuCollectives& GpuThread::collectives_of(const GpuTask& task) {
  const CommunicatorKey key{task.process_set, task.within_host};
  const auto known = sets_.find(key);
  if (known != sets_.end()) return *known->second;
  if (!task.id) throw Error(ErrorCode::kInternal, "the NCCL id of a process set is missing");
  Place& here = place(-1);
  if (!kernels_) kernels_ = std::make_shared<KernelLauncher>(here.gpu);
  const std::string name = "process set " + std::to_string(task.process_set) +
                           (task.within_host ? " within this host" : "");
  auto comm = std::make_unique<NcclCommunicator>(nccl_, *task.id, task.size, task.rank, name,
                                                 services_.stop, services_.lease);
  auto made = std::make_unique<GpuCollectives>(std::move(comm), here.gpu, here.stream.get(),
                                               here.pool, *kernels_, task.order, options_.bits);
  GpuCollectives& kept = *sets_.emplace(key, std::move(made)).first->second;
  kept.communicator().meet();
  if (task.within_host) return kept;
  const std::lock_guard lock(mutex_);
  met_sets_.insert(task.process_set);
  return kept;
}

void GpuThread::start(GpuTask task) {
  FAILPOINT("gpu/start");
  services_.lease.await(services_.stop);
  note(task, GpuProgress::kQueued);
  Place& here = place(-1);
  if (!current_) {
    current_.emplace(*here.gpu);
    relaxed_.emplace(driver_);
  }
  GpuCollectives& collectives = collectives_of(task);
  if (task.in_graph) return capture(std::move(task), collectives);
  const bool recorded = services_.recorder.enabled() && !task.records.empty();
  const auto timing = recorded ? GpuEvent::Timing::kOn : GpuEvent::Timing::kOff;
  if (recorded && !clock_) clock_ = std::make_unique<GpuClock>(here.gpu);
  Flight flight{{}, std::make_shared<GpuEvent>(here.gpu, timing), now_ns(), nullptr};
  for (const auto& operation : task.operations) here.stream.wait_for(operation->gpu->ready);
  if (const auto replayed = take_replayed()) here.stream.wait_for(*replayed);
  if (recorded) {
    flight.begun = std::make_unique<GpuEvent>(here.gpu, timing);
    flight.begun->record(here.stream.get());
  }
  for (const GpuCall& call : task.calls) collectives.enqueue(call);
  flight.done->record(here.stream.get());
  {
    const std::lock_guard lock(mutex_);
    last_done_ = flight.done;
  }
  if (task.completes) {
    for (const auto& operation : task.operations) operation->gpu->done = flight.done;
    services_.table.note_enqueued(task.operations);
  }
  flight.task = std::move(task);
  flights_.push_back(std::move(flight));
  FAILPOINT("gpu/started");
}

std::shared_ptr<const GpuEvent> GpuThread::take_replayed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(replayed_, nullptr);
}

// The stream takes part in the capture from the first wait on, and until the capture ends.
void GpuThread::capture(GpuTask task, GpuCollectives& collectives) {
  Place& here = place(-1);
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

// Completes what the stream has done. Whether there was any.
bool GpuThread::reap() {
  bool any = false;
  while (!flights_.empty() && flights_.front().done->has_passed()) {
    // The GPU goes on while the process is stopped: a rank that the others may have given up waits
    // for word from them before it reports success.
    if (!services_.lease.is_held()) return any;
    Flight flight = std::move(flights_.front());
    flights_.pop_front();
    services_.check_member();
    if (services_.stop.raised()) throw Error(ErrorCode::kShutdown, "stopped");
    services_.work_counter.moved_by_gpu(flight.task.process_set);
    record(flight);
    if (flight.task.completes) services_.table.complete(flight.task.operations);
    any = true;
    end_task();
  }
  if (clock_) record_waits();
  if (!flights_.empty()) {
    // A GPU that is still making the tensors is busy, which is not a hang of ours.
    const GpuTask& next = flights_.front().task;
    const bool is_made = std::ranges::all_of(
        next.operations, [](const auto& operation) { return operation->gpu->ready.has_passed(); });
    if (!is_made) services_.work_counter.moved_by_gpu(next.process_set);
    note(next, is_made ? GpuProgress::kRuns : GpuProgress::kWaits);
  }
  return any;
}

void GpuThread::note(const GpuTask& task, GpuProgress progress) {
  for (const auto& operation : task.operations) operation->gpu->progress = progress;
}

// The times are the GPU's: from when it could begin, since the tensors had been made. Before its
// clock is known they are the host's.
void GpuThread::record(const Flight& flight) {
  if (!flight.begun || !services_.recorder.enabled()) return;
  const uint64_t now = now_ns();
  const uint64_t end = std::min(clock_->ns_of(*flight.done).value_or(now), now);
  uint64_t begin = std::min(clock_->ns_of(*flight.begun).value_or(flight.begin_ns), end);
  if (flight.task.begun_ns) {
    begin = std::min(begin, *flight.task.begun_ns);
    *flight.task.begun_ns = begin;
  }
  if (!flight.task.completes) return;
  for (const GpuRecord& record : flight.task.records) {
    services_.events.record(record.kind, begin, end, record.name, record.seq, record.bucket,
                            record.arg);
  }
  for (const auto& operation : flight.task.operations) {
    operation->gpu->done_ns = end;
    operation->gpu->bucket = flight.task.records.front().bucket;
  }
  clock_->keep_in_step();
}

// A stream that comes to its wait after the bucket is done does not wait, and one that has waited
// for a bucket's first operation does not wait for the others.
void GpuThread::record_waits() {
  std::vector<StreamWait> over;
  {
    const std::lock_guard lock(mutex_);
    const auto is_ahead = [](const StreamWait& wait) {
      // Of an operation that has failed, or that is not recorded, nobody else has this in the end.
      return wait.work->done_ns == 0 && wait.work.use_count() > 1;
    };
    const auto rest = std::stable_partition(stream_waits_.begin(), stream_waits_.end(), is_ahead);
    std::move(rest, stream_waits_.end(), std::back_inserter(over));
    stream_waits_.erase(rest, stream_waits_.end());
  }
  for (const auto& [begun, work] : over) {
    const uint64_t end = work->done_ns;
    if (end == 0 || work->done == last_awaited_) continue;
    last_awaited_ = work->done;
    const uint64_t begin = begun->has_passed() ? clock_->ns_of(*begun).value_or(end) : end;
    services_.events.record(EventKind::kStreamWait, std::min(begin, end), end, 0, 0, work->bucket,
                            0);
  }
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
  // If nobody hears of a rank that was lost meanwhile, this one is at fault, since only it says so.
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
  const auto until = std::chrono::steady_clock::now() + options_.abort_timeout;
  GraphOwners::release_dropped();
  const bool in_graphs =
      std::ranges::any_of(sets_, [](const auto& set) { return set.second->is_in_graphs(); });
  // An abort ends NCCL's threads that launch. Of communicators in graphs it also ends the
  // operations, but comes back only when the graphs, which own what these use, are gone.
  if (in_graphs) {
    await_idle(until, "NCCL did not launch a pending operation", [this] {
      return std::ranges::none_of(
          sets_, [](const auto& set) { return set.second->communicator().is_launching(); });
    });
  }
  const std::vector<std::future<void>> aborts = begin_aborts();
  if (!in_graphs) {
    await_idle(until, "NCCL did not close its communicators", [&] {
      return std::ranges::all_of(aborts, [](const auto& abort) {
        return abort.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      });
    });
  }
  GpuStream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (place_) stream = &place_->stream;
  }
  if (stream == nullptr) return;
  await_idle(until, "the GPU did not finish its pending work", [&] { return stream->is_idle(); });
}

// Together: giving one up waits for kernels that may be behind another's. On threads of their own,
// since they may not come back, and this one may have left a group open.
std::vector<std::future<void>> GpuThread::begin_aborts() {
  std::vector<NcclComm> all;
  for (auto& [number, set] : sets_) {
    if (NcclComm comm = set->communicator().give_up()) all.push_back(comm);
  }
  std::vector<std::future<void>> aborts;
  const auto begin = [&](std::vector<NcclComm> some) {
    std::promise<void> done;
    aborts.push_back(done.get_future());
    std::thread([nccl = nccl_, some = std::move(some), done = std::move(done)]() mutable {
      NcclCommunicator::abort(*nccl, some);
      done.set_value();
    }).detach();
  };
  if (nccl_->has_group_abort() && !all.empty()) {
    begin(all);
  } else {
    for (NcclComm each : all) begin({each});
  }
  return aborts;
}

void GpuThread::await_idle(std::chrono::steady_clock::time_point until, const char* otherwise,
                           const std::function<bool()>& is_idle) {
  while (!is_idle()) {
    if (std::chrono::steady_clock::now() >= until) give_up(otherwise);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void GpuThread::give_up(const std::string& why) const {
  end_while_written_to(services_.rank, why + " within " + seconds_text(options_.abort_timeout) +
                                           " of the job's failure");
}

}  // namespace hvdtune
