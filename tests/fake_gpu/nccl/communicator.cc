#include "communicator.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <set>
#include <stdexcept>
#include <utility>

#include "../engine/capture.h"
#include "../engine/faults.h"
#include "../engine/violations.h"

#ifndef FAKE_NCCL_DEFAULT_VERSION
#define FAKE_NCCL_DEFAULT_VERSION 22809
#endif

namespace fake_gpu {
namespace {

// The first that ends several communicators as one, in a group.
constexpr int kFirstWithGroupAbort = 22200;
constexpr int kFirstWithRanksOnOneDevice = 23000;

std::string& last_error_of_all() {
  static auto* const text = new std::string;
  return *text;
}

std::mutex& last_error_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

uint64_t hash_of(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash == 0 ? 1 : hash;
}

// Every communicator there has ever been in this process.
struct Registry {
  std::mutex mutex;
  std::vector<ncclComm*> comms;
};
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

std::vector<ncclComm*> others_on_device(const ncclComm* comm) {
  std::vector<ncclComm*> found;
  const std::lock_guard lock(registry().mutex);
  for (ncclComm* other : registry().comms) {
    if (other != comm && other->context == comm->context) found.push_back(other);
  }
  return found;
}

// Polls, since what it waits for has many owners. False if released meanwhile.
template <typename Done>
bool wait_outside(Done done) {
  const uint64_t generation = release_generation();
  while (!done()) {
    if (release_generation() != generation) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

uint64_t host_number() {
  const char* chosen = std::getenv("NCCL_HOSTID");
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return hash_of(chosen == nullptr ? name : chosen);
}

bool ranks_may_share_a_device() {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return nccl_version() >= kFirstWithRanksOnOneDevice && enabled != nullptr &&
         std::strcmp(enabled, "1") == 0;
}

ncclResult_t refuse_shared_device(ncclComm* comm) {
  const RankCard& mine = comm->region->card(comm->rank);
  for (int rank = 0; rank < comm->size; ++rank) {
    const RankCard& other = comm->region->card(rank);
    if (rank == comm->rank || other.host != mine.host || other.device != mine.device) continue;
    if (ranks_may_share_a_device()) continue;
    return failed(comm, ncclInvalidUsage,
                  "Duplicate GPU detected : rank " + std::to_string(comm->rank) + " and rank " +
                      std::to_string(rank) + " both on device " + std::to_string(mine.device));
  }
  return ncclSuccess;
}

std::vector<Access> accesses_of(const Request& request, int ranks, int rank) {
  const size_t bytes = request.count * bytes_of_dtype(request.dtype);
  const auto from = reinterpret_cast<uint64_t>(request.from);
  const auto to = reinterpret_cast<uint64_t>(request.to);
  const size_t all = bytes * static_cast<size_t>(ranks);
  switch (request.kind) {
    case Kind::kAllReduce:
      return {{from, from + bytes, false}, {to, to + bytes, true}};
    case Kind::kReduceScatter:
      return {{from, from + all, false}, {to, to + bytes, true}};
    case Kind::kAllGather:
      return {{from, from + bytes, false}, {to, to + all, true}};
    case Kind::kSend:
      return {{from, from + bytes, false}};
    case Kind::kRecv:
      return {{to, to + bytes, true}};
    case Kind::kReduce:
      if (request.peer != rank) return {{from, from + bytes, false}};
      return {{from, from + bytes, false}, {to, to + bytes, true}};
    default:
      if (request.peer != rank) return {{to, to + bytes, true}};
      return {{from, from + bytes, false}, {to, to + bytes, true}};
  }
}

// What a rank of the communicator is told of this device: the first kernel with it that waits,
// whether the kernel's stream has got to it or not, and the one that has the device.
QueueState state_for(ncclComm* comm, int peer) {
  const auto& kernels = comm->context->nccl_kernels;
  const auto waiting = std::find_if(kernels.begin(), kernels.end(), [&](const NcclKernel& kernel) {
    return kernel.comm == comm && kernel.parts[static_cast<size_t>(peer)].number != 0;
  });
  if (waiting == kernels.end() || waiting == kernels.begin()) return {};
  const NcclKernel& first = kernels.front();
  const int there = rank_of(first.comm, comm->region->card(peer));
  const KernelPart part = there < 0 ? KernelPart{} : first.parts[static_cast<size_t>(there)];
  return {waiting->parts[static_cast<size_t>(peer)].number, first.comm->id,
          part.is_needed ? part.number : 0};
}

// The engine's mutex is held.
void tell_others(ncclComm* comm) {
  for (int peer = 0; peer < comm->size; ++peer) {
    if (peer != comm->rank) comm->region->queue(comm->rank, peer).write(state_for(comm, peer));
  }
  comm->region->ring();
}

// Until the device is free for this kernel; false if the communicator is aborted.
bool wait_for_turn(ncclComm* comm, uint64_t ticket) {
  const Context* context = comm->context;
  const uint64_t generation = release_generation();
  std::unique_lock lock(engine().mutex);
  engine().changed.wait(lock, [&] {
    return comm->aborted || release_generation() != generation ||
           context->nccl_kernels.front().ticket == ticket;
  });
  return !comm->aborted && release_generation() == generation;
}

void end_kernel(ncclComm* comm, uint64_t ticket) {
  {
    const std::lock_guard lock(engine().mutex);
    auto& kernels = comm->context->nccl_kernels;
    std::erase_if(kernels, [&](const NcclKernel& kernel) { return kernel.ticket == ticket; });
    std::set<ncclComm*> affected{comm};
    for (const auto& kernel : kernels) affected.insert(kernel.comm);
    for (ncclComm* each : affected) tell_others(each);
    engine().changed.notify_all();
  }
  --comm->kernels;
}

// A collective has to do with all ranks. What is sent to a rank may leave before it takes it.
std::vector<KernelPart> parts_of(ncclComm* comm, const std::vector<Request>& requests) {
  std::vector<KernelPart> parts(static_cast<size_t>(comm->size));
  std::vector<bool> takes_part(parts.size());
  for (const auto& request : requests) {
    if (!is_point_to_point(request.kind)) {
      takes_part.assign(parts.size(), true);
      for (auto& part : parts) part.is_needed = true;
      continue;
    }
    if (request.count == 0) continue;
    const auto peer = static_cast<size_t>(request.peer);
    takes_part[peer] = true;
    if (request.kind == Kind::kRecv) parts[peer].is_needed = true;
  }
  comm->kernels_with.resize(parts.size());
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (takes_part[rank]) parts[rank].number = ++comm->kernels_with[rank];
  }
  return parts;
}

// One kernel: the requests of a group on one stream of one communicator. The engine's mutex is
// held.
CUresult enqueue_kernel(ncclComm* comm, Stream* stream, const std::vector<Request>& requests) {
  std::vector<Access> accesses;
  for (const auto& request : requests) {
    for (const auto& access : accesses_of(request, comm->size, comm->rank)) {
      accesses.push_back(access);
    }
  }
  for (const auto& request : requests) {
    if (request.op < ncclNumOps) continue;
    const Scaling& scaling = comm->scalings.at(request.op);
    const size_t bytes = bytes_of_dtype(scaling.dtype);
    if (scaling.on_device) {
      accesses.push_back({scaling.address, scaling.address + bytes, false});
    }
  }
  const uint64_t ticket = ++engine().next_ticket;
  const std::vector<KernelPart> parts = parts_of(comm, requests);
  comm->context->nccl_kernels.push_back({ticket, comm, parts});
  ++comm->kernels;
  const char* name = name_of(requests.front().kind);
  const CUresult result = enqueue(stream, name, accesses, [comm, ticket, parts, requests] {
    if (wait_for_turn(comm, ticket)) run_kernel(comm, parts, requests);
    end_kernel(comm, ticket);
  });
  if (result == CUDA_SUCCESS) {
    tell_others(comm);
    return result;
  }
  comm->context->nccl_kernels.pop_back();
  --comm->kernels;
  return result;
}

// A kernel in a graph: the communicator does not end before all copies are gone.
class InGraph {
 public:
  explicit InGraph(ncclComm* comm) : comm_(comm) { ++comm_->in_graphs; }
  ~InGraph() { --comm_->in_graphs; }
  InGraph(const InGraph&) = delete;
  InGraph& operator=(const InGraph&) = delete;

 private:
  ncclComm* const comm_;
};

CUresult capture_kernel(ncclComm* comm, Stream* stream, const std::vector<Request>& requests) {
  const auto held = std::make_shared<const InGraph>(comm);
  return capture_step(stream, [comm, requests, held](Stream* to, Launch&) {
    return enqueue_kernel(comm, to, requests);
  });
}

ncclResult_t launch_kernel(ncclComm* comm, CUstream handle, const std::vector<Request>& requests) {
  // NCCL makes the communicator's device current itself.
  Context* const before = std::exchange(current_context(), comm->context);
  const std::lock_guard lock(engine().mutex);
  Stream* stream = stream_of(handle, name_of(requests.front().kind));
  current_context() = before;
  if (stream == nullptr) {
    return failed(comm, ncclInvalidArgument, "the stream is none of the device");
  }
  const bool captured = capture_of(stream) != nullptr;
  if (!captured && is_refused_by_capture("a launch of NCCL's")) {
    return failed(comm, ncclUnhandledCudaError, "launching failed: a stream is being captured");
  }
  const CUresult result =
      captured ? capture_kernel(comm, stream, requests) : enqueue_kernel(comm, stream, requests);
  if (result == CUDA_SUCCESS) return ncclSuccess;
  return failed(comm, ncclUnhandledCudaError, "launching failed: " + std::to_string(result));
}

// By communicator and stream, in the order of their first request.
using Plans = std::vector<std::vector<Request>>;
Plans plans_of(const std::vector<Request>& requests) {
  Plans plans;
  for (const auto& request : requests) {
    const auto found = std::find_if(plans.begin(), plans.end(), [&](const auto& plan) {
      return plan.front().comm == request.comm && plan.front().stream == request.stream;
    });
    if (found == plans.end()) {
      plans.push_back({request});
    } else {
      found->push_back(request);
    }
  }
  return plans;
}

ncclResult_t launch_plans(const Plans& plans) {
  ncclComm* first = plans.front().front().comm;
  if (const auto slow = strike("slow-launch", {{"rank", first->family->rank}})) {
    sleep_for_fault(
        slow->value("ms", 100), [](void* c) { return static_cast<ncclComm*>(c)->aborted.load(); },
        first);
  }
  random_delay();
  for (const auto& plan : plans) {
    if (plan.front().comm->aborted) return ncclInternalError;
    if (const auto late = strike("late-launch", {{"rank", first->family->rank}})) {
      sleep_for_fault(late->value("ms", 100), nullptr, nullptr);
    }
    const ncclResult_t result = launch_kernel(plan.front().comm, plan.front().stream, plan);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

// What NCCL's own thread has yet to launch may not be freed.
uint64_t begin_launch(const std::vector<Request>& requests) {
  std::vector<Access> accesses;
  for (const auto& request : requests) {
    for (const auto& access : accesses_of(request, request.comm->size, request.comm->rank)) {
      accesses.push_back(access);
    }
  }
  const std::lock_guard lock(engine().mutex);
  const uint64_t number = ++engine().launches;
  engine().being_launched.emplace(number, std::move(accesses));
  return number;
}

void end_launch(uint64_t number) {
  const std::lock_guard lock(engine().mutex);
  engine().being_launched.erase(number);
}

// Another thread in a call of it: what NCCL's manual forbids when it is aborted.
bool is_another_inside(const ncclComm* comm) {
  const std::thread::id inside = comm->inside.load();
  return inside != std::thread::id{} && inside != std::this_thread::get_id();
}

void check_joining_others(const ncclComm* comm) {
  for (const ncclComm* other : others_on_device(comm)) {
    if (!other->joining || other->joined_by.load() == std::this_thread::get_id()) continue;
    violate("init-races-abort", comm->name + " is aborted while another thread joins " +
                                    other->name + " on the same device.");
  }
}

// Memory of an aborted communicator is freed, which waits for every kernel on the device.
void wait_for_other_kernels(const ncclComm* comm) {
  const auto stuck = [&]() -> bool {
    const std::lock_guard lock(engine().mutex);
    const auto& kernels = comm->context->nccl_kernels;
    return std::any_of(kernels.begin(), kernels.end(),
                       [](const NcclKernel& kernel) { return !kernel.comm->aborted; });
  };
  if (!stuck()) return;
  violate("abort-one-by-one",
          comm->name +
              " is aborted while a kernel of another communicator is on the same device: "
              "freeing its memory waits for that kernel. Abort all of them in one group.");
  wait_outside([&] { return !stuck(); });
}

}  // namespace

int rank_of(const ncclComm* comm, const RankCard& card) {
  for (int rank = 0; rank < comm->size; ++rank) {
    const RankCard& other = comm->region->card(rank);
    if (other.process == card.process && other.device == card.device) return rank;
  }
  return -1;
}

int nccl_version() {
  return static_cast<int>(number_from("FAKE_NCCL_VERSION", FAKE_NCCL_DEFAULT_VERSION));
}

ncclResult_t failed(ncclComm* comm, ncclResult_t result, const std::string& sentence) {
  if (comm != nullptr) {
    const std::lock_guard lock(comm->error_mutex);
    comm->last_error = sentence;
  }
  const std::lock_guard lock(last_error_mutex());
  last_error_of_all() = sentence;
  return result;
}

std::string last_error_of(ncclComm* comm) {
  if (comm == nullptr) {
    const std::lock_guard lock(last_error_mutex());
    return last_error_of_all();
  }
  const std::lock_guard lock(comm->error_mutex);
  return comm->last_error;
}

ncclComm* new_communicator(std::string name, int size, int rank, bool blocking) {
  if (current_context() == nullptr) {
    violate("wrong-context", "A communicator is made by a thread without a context.");
    return nullptr;
  }
  auto* comm = new ncclComm;
  comm->id = hash_of(name);
  comm->name = std::move(name);
  comm->size = size;
  comm->rank = rank;
  comm->blocking = blocking;
  comm->context = current_context();
  comm->family = std::make_shared<Family>();
  comm->family->rank = rank;
  comm->joined_by = std::this_thread::get_id();
  comm->joining = true;
  const std::lock_guard lock(registry().mutex);
  registry().comms.push_back(comm);
  return comm;
}

Call::Call(ncclComm* comm, const char* name, Needs needs) : comm_(comm) {
  if (in_callback()) {
    violate("call-in-callback", std::string(name) + " is called in a host function of a stream.");
  }
  if (comm == nullptr) {
    refusal_ = failed(nullptr, ncclInvalidArgument, std::string(name) + ": no communicator");
    return;
  }
  if (comm->life == Life::kDestroyed || comm->life == Life::kAborted) {
    violate("use-after-destroy", std::string(name) + " is called for " + comm->name +
                                     ", which has been destroyed or aborted.");
    refusal_ = ncclInvalidArgument;
    return;
  }
  static const bool one_thread = number_from("FAKE_NCCL_ONE_THREAD", 0) != 0;
  if (one_thread && comm->joined_by.load() != std::this_thread::get_id()) {
    violate("second-thread", std::string(name) + " is called for " + comm->name +
                                 " by another thread than the one that joined it.");
  }
  std::thread::id nobody{};
  entered_ = comm->inside.compare_exchange_strong(nobody, std::this_thread::get_id());
  if (!entered_ && nobody != std::this_thread::get_id()) {
    violate("second-thread", std::string(name) + " is called for " + comm->name +
                                 " while another thread is in a call for it.");
  }
  if (comm->aborted) {
    violate("finalize-races-abort",
            std::string(name) + " is called for " + comm->name + " while it is being aborted.");
    refusal_ = ncclInvalidUsage;
  } else if (needs == kReady && comm->state == ncclInProgress) {
    violate("not-ready", std::string(name) + " is called for " + comm->name +
                             " before an earlier call has ended.");
    refusal_ = failed(comm, ncclInvalidArgument, "an earlier call has not ended");
  } else if (needs == kReady && comm->state != ncclSuccess) {
    refusal_ = static_cast<ncclResult_t>(comm->state.load());
  }
}

Call::~Call() {
  if (entered_) comm_->inside = std::thread::id{};
}

ncclResult_t start_job(ncclComm* comm, std::function<ncclResult_t()> job) {
  ++comm->jobs;
  if (comm->blocking) {
    const ncclResult_t result = job();
    if (result != ncclSuccess) comm->state = result;
    --comm->jobs;
    return result;
  }
  comm->state = ncclInProgress;
  std::thread([comm, job = std::move(job)] {
    const ncclResult_t result = job();
    int expected = ncclInProgress;  // a kernel may have failed meanwhile
    comm->state.compare_exchange_strong(expected, result);
    --comm->jobs;
  }).detach();
  return ncclInProgress;
}

ncclResult_t join_region(ncclComm* comm) {
  const int rank = comm->family->rank;
  const auto given_up = [](void* c) { return static_cast<ncclComm*>(c)->aborted.load(); };
  random_delay();
  if (const auto refused = strike("refuse-init", {{"rank", rank}})) {
    return failed(comm, static_cast<ncclResult_t>(refused->value("code", ncclSystemError)),
                  "joining was refused, as a fault asked");
  }
  if (strike("never-ready", {{"rank", rank}})) {
    sleep_for_fault(-1, given_up, comm);
    return failed(comm, ncclInternalError, "joining was given up");
  }
  try {
    comm->region = std::make_shared<Region>(comm->name, comm->size);
  } catch (const std::runtime_error& error) {
    return failed(comm, ncclSystemError, error.what());
  }
  RankCard& card = comm->region->card(comm->rank);
  card.process = ::getpid();
  card.host = host_number();
  card.device = static_cast<uint64_t>(comm->context->device);
  if (card.joined.exchange(1) != 0) {
    return failed(comm, ncclInvalidUsage,
                  "two ranks say they are rank " + std::to_string(comm->rank));
  }
  comm->region->ring();
  const bool all = wait_in_kernel(comm, {}, [&] {
    for (int other = 0; other < comm->size; ++other) {
      if (comm->region->card(other).joined == 0) return false;
    }
    return true;
  });
  if (!all) return failed(comm, ncclInternalError, "joining was given up");
  comm->region->unlink();
  return refuse_shared_device(comm);
}

ncclResult_t split_region(ncclComm* parent, uint64_t number, int color, int key, ncclComm* child) {
  Region& region = *parent->region;
  RankCard& mine = region.card(parent->rank);
  const auto all = [&](std::atomic<uint64_t> RankCard::* counter, uint64_t reached) {
    for (int rank = 0; rank < parent->size; ++rank) {
      if ((region.card(rank).*counter).load() < reached) return false;
    }
    return true;
  };
  ncclComm* waits = child == nullptr ? parent : child;
  const auto wait = [&](std::atomic<uint64_t> RankCard::* counter, uint64_t reached) {
    return wait_in_kernel(parent, {}, [&] { return waits->aborted || all(counter, reached); }) &&
           !waits->aborted;
  };
  if (!wait(&RankCard::splits_read, number - 1)) return ncclInternalError;
  mine.color = color;
  mine.key = key;
  mine.splits_written = number;
  region.ring();
  if (!wait(&RankCard::splits_written, number)) return ncclInternalError;
  std::vector<std::pair<int, int>> members;
  for (int rank = 0; rank < parent->size; ++rank) {
    if (region.card(rank).color == color) members.emplace_back(region.card(rank).key, rank);
  }
  mine.splits_read = number;
  region.ring();
  if (child == nullptr) return ncclSuccess;
  std::sort(members.begin(), members.end());
  child->size = static_cast<int>(members.size());
  const auto place = std::find(members.begin(), members.end(), std::pair{key, parent->rank});
  child->rank = static_cast<int>(place - members.begin());
  return join_region(child);
}

ncclResult_t launch(const std::vector<Request>& requests) {
  if (requests.empty()) return ncclSuccess;
  const Plans plans = plans_of(requests);
  std::set<ncclComm*> comms;
  for (const auto& plan : plans) comms.insert(plan.front().comm);
  if (std::all_of(comms.begin(), comms.end(), [](auto comm) { return comm->blocking; })) {
    return launch_plans(plans);
  }
  for (ncclComm* comm : comms) {
    ++comm->jobs;
    comm->state = ncclInProgress;
  }
  const uint64_t number = begin_launch(requests);
  std::thread([plans, comms, number] {
    const ncclResult_t result = launch_plans(plans);
    end_launch(number);
    for (ncclComm* comm : comms) {
      int expected = ncclInProgress;
      comm->state.compare_exchange_strong(expected, result);
      --comm->jobs;
    }
  }).detach();
  return ncclInProgress;
}

ncclResult_t abort_together(const std::vector<ncclComm*>& comms) {
  if (comms.size() > 1 && nccl_version() < kFirstWithGroupAbort) {
    for (ncclComm* comm : comms) abort_together({comm});
    return ncclSuccess;
  }
  for (ncclComm* comm : comms) {
    check_joining_others(comm);
    if (is_another_inside(comm)) {
      violate("abort-with-thread-inside", comm->name +
                                              " is aborted while another thread is in a "
                                              "call for it, which may hang for ever.");
      sleep_for_fault(-1, nullptr, nullptr);
      return ncclInternalError;
    }
  }
  for (ncclComm* comm : comms) {
    comm->aborted = true;
    const std::lock_guard lock(engine().mutex);
    engine().changed.notify_all();
  }
  const int rank = comms.front()->family->rank;
  if (const auto slow = strike("slow-abort", {{"rank", rank}})) {
    sleep_for_fault(slow->value("ms", 2000), nullptr, nullptr);
  }
  if (strike("hung-abort", {{"rank", rank}})) sleep_for_fault(-1, nullptr, nullptr);
  for (ncclComm* comm : comms) {
    const auto is_over = [&] {
      return comm->jobs == 0 && comm->kernels == 0 && comm->in_graphs == 0;
    };
    if (!wait_outside(is_over)) return ncclInternalError;
  }
  wait_for_other_kernels(comms.front());
  for (ncclComm* comm : comms) {
    if (comm->region != nullptr) comm->region->unlink();
    comm->region.reset();
    comm->life = Life::kAborted;
  }
  return ncclSuccess;
}

ncclResult_t finalize(ncclComm* comm) {
  return start_job(comm, [comm] {
    random_delay();
    wait_outside([&] { return (comm->kernels == 0 && comm->in_graphs == 0) || comm->aborted; });
    comm->life = Life::kFinalized;
    return ncclSuccess;
  });
}

ncclResult_t destroy(ncclComm* comm) {
  if (!wait_outside([&] { return comm->kernels == 0 && comm->jobs == 0; })) {
    return ncclInternalError;
  }
  comm->region.reset();
  comm->life = Life::kDestroyed;
  return ncclSuccess;
}

ncclResult_t read_config(const ncclConfig_t* given, bool& blocking, std::string& name) {
  if (given == nullptr) return ncclSuccess;
  ncclConfig_t config = FAKE_NCCL_CONFIG_INITIALIZER;
  size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  std::memcpy(static_cast<void*>(&config), given, std::min(size, sizeof config));
  if (size < 24 || config.magic != NCCL_CONFIG_MAGIC) {
    violate("bad-config", "A ncclConfig_t is not initialised: its size is " + std::to_string(size) +
                              " and its magic number wrong.");
    return failed(nullptr, ncclInvalidArgument, "ncclConfig_t argument not initialized");
  }
  // A version reads the fields that the declared version had.
  const std::pair<unsigned, size_t> needs[] = {
      {22800, 80}, {22700, 72}, {21800, 48}, {21700, 40}, {21400, 24}};
  for (const auto& [version, bytes] : needs) {
    if (config.version < version) continue;
    if (size >= bytes) break;
    violate("bad-config", "A ncclConfig_t says that it is of version " +
                              std::to_string(config.version) + ", but has " + std::to_string(size) +
                              " bytes, of " + std::to_string(bytes) + ".");
    return failed(nullptr, ncclInvalidArgument, "ncclConfig_t is too small");
  }
  const bool set = config.blocking != NCCL_CONFIG_UNDEF_INT;
  if (set && config.blocking != 0 && config.blocking != 1) {
    return failed(nullptr, ncclInvalidArgument, "blocking is neither 0 nor 1");
  }
  if (set) blocking = config.blocking == 1;
  const bool named = size >= 56 && config.version >= 22700 && config.commName != nullptr;
  if (named) name = config.commName;
  return ncclSuccess;
}

}  // namespace fake_gpu
