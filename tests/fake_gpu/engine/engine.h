// Devices, their memory, streams and events, on host memory.
//
// A stream is a thread that carries out its operations in order, each after a random delay. Device
// memory has two addresses: the device's, where nobody can read or write, and the host's, which
// only operations of streams use.
//
// Order is checked when an operation is enqueued, as the program asked for it, whatever the threads
// do then. Every operation has a number in its stream. A clock says of each stream how many of its
// operations are known to be done: a stream's grows by cuStreamWaitEvent, the host's (one for each
// context) by queries and waits that succeeded. Two operations that touch the same bytes, one of
// them writing, must be ordered by these clocks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../include/fake_cuda.h"

struct ncclComm;

namespace fake_gpu {

// Of a stream's number, how many of its operations are done.
using Clock = std::map<uint32_t, uint64_t>;
void join(Clock& into, const Clock& other);

struct Access {
  uint64_t begin;
  uint64_t end;
  bool write;
};

struct PastAccess {
  Access access;
  uint32_t stream;
  uint64_t number;
  const char* what;
};

enum class Memory { kDevice, kNccl, kPinned };

struct Allocation {
  uint64_t base;
  size_t bytes;
  Memory memory;
  int device;
  std::vector<PastAccess> accesses;
};

struct Context;

struct Operation {
  uint64_t number;
  bool races;  // that has been reported
  std::function<void()> run;
};

struct Stream {
  Context* context;
  uint32_t id;
  unsigned flags;
  bool is_legacy;
  Clock clock;           // what is done before the next operation starts, own operations aside
  uint64_t enqueued;     // the number of the last operation
  uint64_t host_joined;  // the version of the context's clock that this one has taken over
  uint64_t capture;      // in which it takes part: see capture.h; 0: none
  bool destroyed;
  std::deque<Operation> operations;
};

// What one rank of a communicator has to do with a kernel.
struct KernelPart {
  uint64_t number = 0;  // of the kernels that have to do with that rank; 0: it has no part in this
  bool is_needed = false;  // it ends only when that rank has done its part
};

// A kernel of NCCL that was launched and has not ended. On a device they run one at a time, in the
// order of their launches: what may happen on a real one whenever two do not fit beside each other.
struct NcclKernel {
  uint64_t ticket;
  ncclComm* comm;                 // which does not end before its kernels have
  std::vector<KernelPart> parts;  // by rank
};

struct Context {
  int device;
  int retained;
  Clock known_to_host;
  uint64_t host_version;
  uint64_t allocated_bytes;
  Stream* legacy;
  std::vector<Stream*> streams;
  std::deque<NcclKernel> nccl_kernels;
};

// What an event has captured: the operation of a stream that records it.
struct Recorded {
  uint32_t stream;
  uint64_t number;
  Clock clock;
  std::shared_ptr<std::atomic<uint64_t>> time_ns;
};

struct CapturedEvent;  // see capture.h

struct Event {
  Context* context;
  unsigned flags;
  bool is_recorded;
  Recorded recorded;
  std::shared_ptr<const CapturedEvent> captured;  // instead, if it was recorded during a capture
};

// Everything behind one mutex. Never destroyed, since threads of streams outlive main.
struct Engine {
  std::mutex mutex;
  std::condition_variable changed;
  bool initialized = false;
  bool paused = false;
  std::vector<std::unique_ptr<Context>> contexts;  // one for each device
  std::map<uint64_t, Allocation> allocations;      // by their first byte
  std::vector<uint64_t> done;                      // of each stream's number, operations done
  std::vector<uint32_t> reusable_ids;
  std::set<const void*> streams;  // handles that are valid
  std::set<const void*> events;
  uint64_t next_ticket = 0;
  uint64_t launches = 0;
  std::map<uint64_t, std::vector<Access>> being_launched;  // by NCCL's threads
};
Engine& engine();

// The calling thread's, or null.
Context*& current_context();
// Whether the calling thread carries out a host function of a stream.
bool& in_callback();

// --- Below, the engine's mutex is held by the caller, except where a comment says otherwise.

// Null, and a violation, where the handle is none or of another context than the current.
Stream* stream_of(CUstream handle, const char* caller);
Stream* create_stream(Context* context, unsigned flags);
void destroy_stream(Stream* stream);

// Checks the order and adds the operation. `run` is called without the mutex. If the stream is
// being captured, all of this happens when its graph is launched.
CUresult enqueue(Stream* stream, const char* what, const std::vector<Access>& accesses,
                 std::function<void()> run);

// What an event recorded now would capture; enqueues nothing.
Clock clock_after(const Stream* stream);
void host_learns(Context* context, const Clock& clock);
bool is_done(uint32_t stream, uint64_t number);
// Waits, without the mutex meanwhile; false if released.
bool wait_done(std::unique_lock<std::mutex>& lock, uint32_t stream, uint64_t number);
// Until all that is enqueued on the device is done, as freeing memory waits; false if released.
bool wait_idle(std::unique_lock<std::mutex>& lock, Context* context);

// Null, if the device has no room, or a fault says so.
Allocation* allocate(Context* context, size_t bytes, Memory memory);
// Reports memory that may still be in use, then waits for the device.
CUresult release_memory(std::unique_lock<std::mutex>& lock, uint64_t base, bool pinned);
// The allocation in which the address lies, or null.
Allocation* allocation_at(uint64_t address);

// Needs no mutex: the host's address of a device's address; others stay as they are.
void* host_address(uint64_t address);
bool is_device_address(uint64_t address);

// The sentence's words for an address: "device memory 0x... (1024 bytes at 0x...)".
std::string described(uint64_t address);

// Sleeps for a random time, up to FAKE_GPU_DELAY_US. Needs no mutex.
void random_delay();
uint64_t now_ns();
// The number that an environment variable has, or the default.
uint64_t number_from(const char* variable, uint64_t otherwise);

}  // namespace fake_gpu
