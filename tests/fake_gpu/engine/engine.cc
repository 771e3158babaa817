#include "engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include "capture.h"
#include "faults.h"
#include "violations.h"

#ifdef __SANITIZE_THREAD__
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace fake_gpu {
namespace {

constexpr uint64_t kAddressBytes = uint64_t{16} << 30;
constexpr uint64_t kPage = 4096;
constexpr size_t kPoisonedBytes = size_t{1} << 20;

uint64_t rounded(uint64_t bytes) {
  return (std::max<uint64_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

// Device addresses are handed out once, as long as there are others, so that a use of memory that
// was freed is seen.
class AddressSpace {
 public:
  AddressSpace() : device_(map(PROT_NONE)), host_(map(PROT_READ | PROT_WRITE)) {}

  // 0 if there is none.
  uint64_t take(size_t bytes) {
    const uint64_t needed = rounded(bytes) + kPage;  // the page behind it belongs to nobody
    if (used_ + needed <= kAddressBytes) {
      used_ += needed;
      return device_ + used_ - needed;
    }
    for (auto old = freed_.begin(); old != freed_.end(); ++old) {
      if (old->second != needed) continue;
      const uint64_t base = old->first;
      freed_.erase(old);
      return base;
    }
    return 0;
  }

  void give_back(uint64_t base, size_t bytes) {
    ::madvise(host(base), rounded(bytes), MADV_DONTNEED);
    freed_.emplace_back(base, rounded(bytes) + kPage);
  }

  bool contains(uint64_t address) const {
    return address >= device_ && address < device_ + kAddressBytes;
  }
  void* host(uint64_t address) const { return reinterpret_cast<void*>(address - device_ + host_); }

 private:
  static uint64_t map(int protection) {
    void* base = ::mmap(nullptr, kAddressBytes, protection,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
      note("cannot reserve 16 GiB of addresses for device memory");
      std::abort();
    }
    return reinterpret_cast<uint64_t>(base);
  }

  const uint64_t device_;
  const uint64_t host_;
  uint64_t used_ = kPage;
  std::deque<std::pair<uint64_t, uint64_t>> freed_;
};

AddressSpace& addresses() {
  static AddressSpace* const space = new AddressSpace;
  return *space;
}

// A race that has been reported need not be reported by ThreadSanitizer as well.
void run_unwatched(const Operation& operation) {
#ifdef __SANITIZE_THREAD__
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  operation.run();
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#else
  operation.run();
#endif
}

void run_stream(Stream* stream) {
  Engine& all = engine();
  std::unique_lock lock(all.mutex);
  for (;;) {
    all.changed.wait(lock,
                     [&] { return stream->operations.empty() ? stream->destroyed : !all.paused; });
    if (stream->operations.empty()) break;
    {
      const Operation operation = std::move(stream->operations.front());
      stream->operations.pop_front();
      lock.unlock();
      random_delay();
      if (operation.races) {
        run_unwatched(operation);
      } else {
        operation.run();
      }
      lock.lock();
      all.done[stream->id] = operation.number;
    }
    all.changed.notify_all();
  }
  auto& streams = stream->context->streams;
  streams.erase(std::find(streams.begin(), streams.end(), stream));
  // A new stream may go on with its number, where the host knows that the old one is done.
  const auto known = stream->context->known_to_host.find(stream->id);
  if (known != stream->context->known_to_host.end() && known->second >= stream->enqueued) {
    all.reusable_ids.push_back(stream->id);
  }
  delete stream;
}

bool is_known(const Clock& clock, const PastAccess& past) {
  const auto found = clock.find(past.stream);
  return found != clock.end() && found->second >= past.number;
}

std::string hex(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// Reports what the new operation would race with; false if it does.
bool check_order(const Allocation& memory, const Access& access, const Stream* stream,
                 const char* what) {
  for (const auto& past : memory.accesses) {
    const bool overlap = past.access.begin < access.end && access.begin < past.access.end;
    if (!overlap || !(past.access.write || access.write) || past.stream == stream->id) continue;
    if (is_known(stream->clock, past)) continue;
    violate("race", std::string(what) + " on stream " + std::to_string(stream->id) +
                        (access.write ? " writes " : " reads ") + described(access.begin) +
                        ", which " + past.what + " on stream " + std::to_string(past.stream) +
                        (past.access.write ? " writes" : " reads") + ", and no event orders them.");
    return false;
  }
  return true;
}

// Adds the access, and drops those of which nobody can ask any more.
void remember(Allocation& memory, const PastAccess& fresh, const Context* context) {
  std::erase_if(memory.accesses, [&](const PastAccess& past) {
    if (is_known(context->known_to_host, past)) return true;
    return past.stream == fresh.stream && past.access.begin >= fresh.access.begin &&
           past.access.end <= fresh.access.end && (fresh.access.write || !past.access.write);
  });
  memory.accesses.push_back(fresh);
}

bool is_being_launched(const Allocation& memory) {
  const uint64_t end = memory.base + memory.bytes;
  const auto uses = [&](const Access& access) {
    return access.begin < end && memory.base < access.end;
  };
  const auto& all = engine().being_launched;
  return std::any_of(all.begin(), all.end(), [&](const auto& launch) {
    return std::any_of(launch.second.begin(), launch.second.end(), uses);
  });
}

// What is enqueued on the legacy stream and on streams that block waits for each other.
std::vector<std::pair<uint32_t, uint64_t>> implicit_waits(Stream* stream) {
  std::vector<std::pair<uint32_t, uint64_t>> waits;
  if ((stream->flags & CU_STREAM_NON_BLOCKING) != 0) return waits;
  const Engine& all = engine();
  for (const Stream* other : stream->context->streams) {
    const bool related = other != stream && (other->flags & CU_STREAM_NON_BLOCKING) == 0 &&
                         (stream->is_legacy || other->is_legacy);
    if (related && all.done[other->id] < other->enqueued) {
      waits.emplace_back(other->id, other->enqueued);
    }
    if (related) join(stream->clock, clock_after(other));
  }
  return waits;
}

}  // namespace

Engine& engine() {
  static Engine* const only = new Engine;
  return *only;
}

Context*& current_context() {
  static thread_local Context* current = nullptr;
  return current;
}

bool& in_callback() {
  static thread_local bool inside = false;
  return inside;
}

void join(Clock& into, const Clock& other) {
  for (const auto& [stream, number] : other) {
    auto& known = into[stream];
    known = std::max(known, number);
  }
}

Stream* stream_of(CUstream handle, const char* caller) {
  Context* context = current_context();
  if (context == nullptr) {
    violate("wrong-context", std::string(caller) + " is called by a thread without a context.");
    return nullptr;
  }
  // 0 and 1 both name the legacy stream.
  if (reinterpret_cast<uintptr_t>(handle) <= 1) return context->legacy;
  if (!engine().streams.contains(handle)) {
    violate("dead-handle", std::string(caller) + " is given a stream that does not exist.");
    return nullptr;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (stream->context != context) {
    violate("wrong-context", std::string(caller) + " is given a stream of device " +
                                 std::to_string(stream->context->device) +
                                 " while the thread's context is device " +
                                 std::to_string(context->device) + "'s.");
    return nullptr;
  }
  return stream;
}

Stream* create_stream(Context* context, unsigned flags) {
  Engine& all = engine();
  uint32_t id = static_cast<uint32_t>(all.done.size());
  if (all.reusable_ids.empty()) {
    all.done.push_back(0);
  } else {
    id = all.reusable_ids.back();
    all.reusable_ids.pop_back();
  }
  auto* stream = new Stream{context, id, flags, false, {}, all.done[id], 0, 0, false, {}};
  context->streams.push_back(stream);
  all.streams.insert(stream);
  std::thread(run_stream, stream).detach();
  return stream;
}

void destroy_stream(Stream* stream) {
  Engine& all = engine();
  all.streams.erase(stream);
  stream->destroyed = true;
  all.changed.notify_all();
}

CUresult enqueue(Stream* stream, const char* what, const std::vector<Access>& accesses,
                 std::function<void()> run) {
  Engine& all = engine();
  if (capture_of(stream) != nullptr) {
    return capture_step(stream, [what, accesses, run = std::move(run)](Stream* to, Launch&) {
      return enqueue(to, what, accesses, run);
    });
  }
  if (stream->host_joined != stream->context->host_version) {
    join(stream->clock, stream->context->known_to_host);
    stream->host_joined = stream->context->host_version;
  }
  const auto waits = implicit_waits(stream);
  const uint64_t number = stream->enqueued + 1;
  bool races = false;
  for (const auto& access : accesses) {
    if (access.begin == access.end) continue;
    Allocation* memory = allocation_at(access.begin);
    if (memory == nullptr && !is_device_address(access.begin)) continue;  // not the driver's
    if (memory == nullptr) {
      violate("use-after-free", std::string(what) + " uses " + described(access.begin) + ".");
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (access.end > memory->base + memory->bytes) {
      violate("out-of-bounds", std::string(what) + " uses " +
                                   std::to_string(access.end - access.begin) + " bytes from " +
                                   hex(access.begin) + " on, beyond the end of " +
                                   described(access.begin) + ".");
      return CUDA_ERROR_INVALID_VALUE;
    }
    races = !check_order(*memory, access, stream, what) || races;
  }
  for (const auto& access : accesses) {
    if (access.begin == access.end) continue;
    if (Allocation* memory = allocation_at(access.begin)) {
      remember(*memory, {access, stream->id, number, what}, stream->context);
    }
  }
  stream->enqueued = number;
  if (!waits.empty()) {
    run = [waits, rest = std::move(run)] {
      std::unique_lock lock(engine().mutex);
      for (const auto& [other, until] : waits) wait_done(lock, other, until);
      lock.unlock();
      rest();
    };
  }
  stream->operations.push_back({number, races, std::move(run)});
  all.changed.notify_all();
  return CUDA_SUCCESS;
}

Clock clock_after(const Stream* stream) {
  Clock clock = stream->clock;
  clock[stream->id] = stream->enqueued;
  return clock;
}

void host_learns(Context* context, const Clock& clock) {
  join(context->known_to_host, clock);
  ++context->host_version;
}

bool is_done(uint32_t stream, uint64_t number) { return engine().done[stream] >= number; }

bool wait_done(std::unique_lock<std::mutex>& lock, uint32_t stream, uint64_t number) {
  const uint64_t generation = release_generation();
  engine().changed.wait(
      lock, [&] { return is_done(stream, number) || release_generation() != generation; });
  return is_done(stream, number);
}

bool wait_idle(std::unique_lock<std::mutex>& lock, Context* context) {
  std::vector<std::pair<uint32_t, uint64_t>> pending;
  for (const Stream* stream : context->streams) pending.emplace_back(stream->id, stream->enqueued);
  bool idle = true;
  for (const auto& [stream, number] : pending) idle = wait_done(lock, stream, number) && idle;
  return idle;
}

Allocation* allocate(Context* context, size_t bytes, Memory memory) {
  static uint64_t count = 0;
  Engine& all = engine();
  if (strike("out-of-memory", {{"allocation", ++count}, {"device", context->device}})) {
    return nullptr;
  }
  const bool on_device = memory != Memory::kPinned;
  static const uint64_t room = number_from("FAKE_GPU_MEMORY_BYTES", uint64_t{4} << 30);
  if (on_device && (bytes > room || context->allocated_bytes + bytes > room)) return nullptr;
  uint64_t base = 0;
  if (on_device) {
    base = addresses().take(bytes);
  } else {
    void* pages =
        ::mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = pages == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(pages);
  }
  if (base == 0) return nullptr;
  // Memory is not zero on a real device; whoever relies on it shall see.
  std::memset(host_address(base), 0xa5, std::min(bytes, kPoisonedBytes));
  if (on_device) context->allocated_bytes += bytes;
  return &all.allocations.emplace(base, Allocation{base, bytes, memory, context->device, {}})
              .first->second;
}

CUresult release_memory(std::unique_lock<std::mutex>& lock, uint64_t base, bool pinned) {
  Engine& all = engine();
  const auto found = all.allocations.find(base);
  if (found == all.allocations.end() || (found->second.memory == Memory::kPinned) != pinned) {
    violate("use-after-free", described(base) + " is freed, which is no allocation.");
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context = all.contexts[found->second.device].get();
  for (const auto& past : found->second.accesses) {
    if (is_known(context->known_to_host, past)) continue;
    violate("freed-in-flight", described(base) + " is freed while the host has not seen that " +
                                   past.what + " on stream " + std::to_string(past.stream) +
                                   " is done.");
    break;
  }
  if (is_being_launched(found->second)) {
    violate("freed-in-flight", described(base) + " is freed while NCCL is launching what uses it.");
  }
  if (!wait_idle(lock, context)) return CUDA_ERROR_UNKNOWN;
  const auto again = all.allocations.find(base);  // others may have freed meanwhile
  if (again == all.allocations.end()) return CUDA_ERROR_INVALID_VALUE;
  if (pinned) {
    ::munmap(reinterpret_cast<void*>(base), rounded(again->second.bytes));
  } else {
    context->allocated_bytes -= again->second.bytes;
    addresses().give_back(base, again->second.bytes);
  }
  all.allocations.erase(again);
  return CUDA_SUCCESS;
}

Allocation* allocation_at(uint64_t address) {
  auto& allocations = engine().allocations;
  auto next = allocations.upper_bound(address);
  if (next == allocations.begin()) return nullptr;
  Allocation& memory = std::prev(next)->second;
  return address < memory.base + std::max<size_t>(memory.bytes, 1) ? &memory : nullptr;
}

void* host_address(uint64_t address) {
  return is_device_address(address) ? addresses().host(address) : reinterpret_cast<void*>(address);
}

bool is_device_address(uint64_t address) { return addresses().contains(address); }

std::string described(uint64_t address) {
  const Allocation* memory = allocation_at(address);
  if (memory == nullptr) return "memory at " + hex(address) + ", which is not allocated";
  const char* kind = memory->memory == Memory::kPinned ? "pinned memory" : "device memory";
  return std::string(kind) + " at " + hex(address) + " (in " + std::to_string(memory->bytes) +
         " bytes at " + hex(memory->base) + ")";
}

void random_delay() {
  static const uint64_t most = number_from("FAKE_GPU_DELAY_US", 100);
  static std::atomic<uint64_t> threads{0};
  static const uint64_t seed = number_from("FAKE_GPU_SEED", 1);
  static thread_local std::minstd_rand random(
      static_cast<unsigned>(seed * 7919 + threads.fetch_add(1) + 1));
  if (most == 0 || random() % 4 != 0) return;
  std::this_thread::sleep_for(std::chrono::microseconds(random() % (most + 1)));
}

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace fake_gpu
