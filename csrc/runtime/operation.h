// Operations in flight on one rank, shared by the threads that ask for them and the cycle thread
// that carries them out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/status.h"
#include "negotiate/pending_requests.h"
#include "wire/message.h"
#include "wire/report.h"

namespace hvdtune {

using Handle = uint64_t;

// Memory of one tensor of an operation; the caller keeps it alive until done.
struct TensorMemory {
  const uint8_t* input = nullptr;
  uint8_t* output = nullptr;  // null where only negotiation tells the size: see Result
  // Of an operation whose result's size negotiation tells: the bytes that the caller expects. With
  // another size the result is in a Result all the same.
  size_t output_bytes = 0;
};

class GpuMemory;
struct GpuWork;

// A result whose size the caller could not know.
struct Result {
  std::unique_ptr<uint8_t[]> bytes;
  std::shared_ptr<GpuMemory> gpu;  // has it instead where the tensors are on a GPU
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool in_place = false;  // in the caller's memory, and nowhere else
};

struct Operation;

// Told once that an operation has ended, and why it failed (null if it did not), by the thread that
// ends it, which holds no lock of the table. Must not block.
using OnEnd = std::function<void(const Operation&, const Error*)>;

// Told at most once that an operation has been put on a GPU's stream, by the thread that does so,
// which holds no lock of the table. Must not block. Where the job fails meanwhile, OnEnd may be
// called beside it, or before.
using OnEnqueued = std::function<void(const std::shared_ptr<Operation>&)>;

// Immutable once added, but for the fields that only the cycle thread uses until it is done and
// only the caller after.
struct Operation {
  std::shared_ptr<const Request> request;
  std::vector<TensorMemory> memory;  // one per tensor of the request
  std::shared_ptr<GpuWork> gpu;      // null: the memory is the host's
  uint64_t announced_ns = 0;  // by the caller; the cycle thread may collect a while before it tells
  bool was_cached = false;
  std::vector<Result> results;   // allgather, alltoall: one per tensor
  std::vector<int64_t> numbers;  // alltoall: rows received from each rank of the set; join: the
                                 // last rank; new process set: its number
  bool awaited = false;          // the caller waits for it from the start: see OperationTable::add
  bool patient = false;          // nobody waits for it: however long it takes, nothing hangs
  std::string title;             // what it is called in this rank's trace; "": as in the request
  Handle handle = 0;             // as OperationTable::add gives it
  OnEnd on_end;            // with one, the handle ends with the operation: nobody may wait for it
  OnEnqueued on_enqueued;  // beside on_end; then nobody waits any more who waited for the end
};

// An operation that is in flight on this rank, for the hang detector.
struct PendingOperation {
  std::shared_ptr<const Request> request;
  uint64_t announced_ns = 0;
  GpuProgress gpu = GpuProgress::kNone;
};

using Failure = std::pair<OperationKey, Error>;

// Thread rule: every member may be called from any thread; mutex_ guards all state.
class OperationTable {
 public:
  // Adds all or none. What is `awaited` counts as waited for at once, though no thread of the
  // script need be blocked. Throws Error(kDuplicateName), or the error given to close() or
  // remove_set().
  std::vector<Handle> add(std::vector<Operation> operations);

  // For the cycle thread. Operations added since the last call, in order.
  std::vector<std::shared_ptr<Operation>> take_new();
  bool has_new() const;
  // Null if no operation has the name.
  std::shared_ptr<Operation> find(const OperationKey& key) const;
  // All at once: a caller that waits for one of them most likely waits for the next as well.
  void complete(std::span<const std::shared_ptr<Operation>> operations);
  // All at once, too; what is not in flight on this rank is passed over.
  void fail(std::span<const Failure> failures);
  // Fails all that is in flight in a process set that was removed, and from then on add() of what
  // is in it: whoever looked the set up before may still come.
  void remove_set(uint32_t process_set, const Error& error);
  // Fails all in flight, and from then on add(), with `error`; each failure names its tensor. The
  // first close() stands.
  void close(const Error& error);

  // True once done; throws what the operation failed with, Error(kUsage) for an unknown handle.
  bool poll(Handle handle) const;
  // The same, waiting at most `time`. If it has to wait, `on_block` is called first, without the
  // lock; its argument says whether the operation has ended.
  using OnBlock = std::function<void(const std::function<bool()>& has_ended)>;
  bool wait(Handle handle, std::chrono::nanoseconds time, const OnBlock& on_block);
  // The same until the operation has been put on a GPU's stream, or has ended.
  bool wait_enqueued(Handle handle, std::chrono::nanoseconds time, const OnBlock& on_block);
  // Frees their names: whoever has waited for that may submit the next operation of the name, which
  // the stream puts behind this one.
  void note_enqueued(std::span<const std::shared_ptr<Operation>> operations);
  // Returns when no operation on tensors of a GPU is left that has not been put on its stream, or
  // ended; false when `time` has passed.
  bool wait_none_for_gpu(std::chrono::nanoseconds time);
  // Returns when every operation on tensors of a GPU has ended, or close() has been called; false
  // when `time` has passed.
  bool wait_gpu_done(std::chrono::nanoseconds time);
  // Throws what close() was given, if it has been called or is within `time`.
  void check_open(std::chrono::nanoseconds time);
  // REQUIRES: it has not been released.
  std::shared_ptr<Operation> operation_of(Handle handle) const;
  // Everything in flight that has an on_end counts as waited for from now on.
  void await_all();
  // Ends a handle and hands out its operation. REQUIRES: it is done.
  std::shared_ptr<Operation> release(Handle handle);

  // Calls `on_done` once, when the operation is done: at once if it is, else from the thread that
  // ends it, without the lock; it must not block. One for each handle. False for a handle that has
  // been released.
  bool watch(Handle handle, std::function<void()> on_done);

  // In the order in which they were submitted, but for patient ones.
  std::vector<PendingOperation> pending() const;
  // When the oldest of those in flight in each process set was announced, patient ones left out.
  std::map<uint32_t, uint64_t> oldest_ns() const;
  // How many wait for operations that are not done: threads inside wait(), and await_all().
  int waiting_threads() const;

  // Says that the process has so many threads that could call anything here, all of which have been
  // seen to wait; 0 says that nothing is known of them.
  void note_blocked_threads(int count);
  // Whether each of them waits for an operation that is not done, so that none can call anything.
  bool is_blocked() const;

 private:
  struct Entry {
    std::shared_ptr<Operation> operation;
    bool done = false;
    std::optional<Error> error;
    int waiting = 0;       // threads
    bool awaited = false;  // as the operation asked for, until it is done
    std::function<void()> on_done;
  };
  struct EndedOperation {
    std::shared_ptr<Operation> operation;
    std::optional<Error> error;
  };
  void await_no_more_locked(Entry& entry);
  void end_locked(Handle handle, std::optional<Error> error);
  void finish_locked(const OperationKey& key, std::optional<Error> error);
  template <typename Visit>  // of each operation that has not ended
  void for_each_locked(Visit visit) const;
  void notify_endings(std::unique_lock<std::mutex> lock);
  const Entry& entry(Handle handle) const;
  bool is_done(Handle handle) const;
  bool has_come(Handle handle, bool enqueued) const {
    return is_done(handle) || (enqueued && enqueued_.contains(handle));
  }
  bool wait_for(Handle handle, bool enqueued, std::chrono::nanoseconds time,
                const OnBlock& on_block);
  bool has_ended_locked(Handle handle) const;

  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::unordered_map<Handle, Entry> entries_;
  std::unordered_map<OperationKey, Handle, OperationKeyHash> in_flight_;
  std::unordered_set<Handle> enqueued_;  // on a GPU's stream: no longer in in_flight_
  std::vector<std::shared_ptr<Operation>> new_;
  // To be told, by whoever holds the lock, without it.
  std::vector<EndedOperation> endings_;
  std::vector<std::function<void()>> watchers_;
  std::optional<Error> closed_;
  std::unordered_map<uint32_t, Error> removed_sets_;  // numbers are not used again
  Handle next_ = 1;
  int waiting_ = 0;  // sum over entries_, of threads and of what is awaited
  int blocked_threads_ = 0;
};

}  // namespace hvdtune
