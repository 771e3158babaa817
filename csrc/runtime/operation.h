// Operations in flight on one rank, shared by the threads that submit them and the cycle thread,
// which carries them out.
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
  uint8_t* output = nullptr;  // null if the size is known only after negotiation: see Result
  // The size of `output` that the caller expects if it is known only after negotiation. A result of
  // another size is in a Result.
  size_t output_bytes = 0;
};

class GpuMemory;
struct GpuWork;

// A result whose size is known only after negotiation.
struct Result {
  std::unique_ptr<uint8_t[]> bytes;
  std::shared_ptr<GpuMemory> gpu;  // instead of bytes, if the tensors are on a GPU
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  bool in_place = false;  // in the caller's memory, and nowhere else
};

struct Operation;

// Called once when an operation has ended, with its error or null, by the thread that ends it. That
// thread holds no lock of the table. Must not block.
using OnEnd = std::function<void(const Operation&, const Error*)>;

// Called at most once when an operation has been put on a GPU's stream, by the thread that does so.
// That thread holds no lock of the table. Must not block. If the job fails, OnEnd may be called at
// the same time, or before.
using OnEnqueued = std::function<void(const std::shared_ptr<Operation>&)>;

// Immutable once added, except fields that belong to the cycle thread until the operation is done,
// and then to the caller.
struct Operation {
  std::shared_ptr<const Request> request;
  std::vector<TensorMemory> memory;  // one per tensor of the request
  std::shared_ptr<GpuWork> gpu;      // null: the memory is the host's
  uint64_t announced_ns = 0;         // when it was submitted; its announcement may be sent later
  bool was_cached = false;
  std::vector<Result> results;   // allgather, alltoall: one per tensor
  std::vector<int64_t> numbers;  // alltoall: rows received from each rank of the set; join: the
                                 // last rank; new process set: its number
  bool awaited = false;          // the caller waits for it from the start: see OperationTable::add
  bool patient = false;          // exempt from hang reports and from the abort time
  std::string title;             // its name in this rank's trace; "": that of the request
  Handle handle = 0;             // set by OperationTable::add
  OnEnd on_end;                  // if set, the operation's end ends the handle: no thread may wait
  OnEnqueued on_enqueued;        // needs on_end; afterwards the operation is no longer awaited
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
  // Adds all or none. An `awaited` operation counts as waited for at once, even if no thread of the
  // script is blocked. Throws Error(kDuplicateName), or the error given to close() or remove_set().
  std::vector<Handle> add(std::vector<Operation> operations);

  // For the cycle thread. Operations added since the last call, in order.
  std::vector<std::shared_ptr<Operation>> take_new();
  bool has_new() const;
  // Null if no operation has the name.
  std::shared_ptr<Operation> find(const OperationKey& key) const;
  // All at once: a caller that waits for one of them most likely waits for the next as well.
  void complete(std::span<const std::shared_ptr<Operation>> operations);
  // All at once, too; ignores operations that are not in flight on this rank.
  void fail(std::span<const Failure> failures);
  // Fails all operations in flight in a process set that was removed, and later calls of add() with
  // that set: a thread may have looked it up before.
  void remove_set(uint32_t process_set, const Error& error);
  // Fails all operations in flight, and later calls of add(), with `error`; each failure names its
  // tensor. Later calls of close() have no effect.
  void close(const Error& error);

  // Returns whether it is done. Throws its error, or Error(kUsage) if the handle is unknown.
  bool poll(Handle handle) const;
  // The same, waiting at most `time`. Before it waits, it calls `on_block` without the lock; the
  // argument returns whether the operation has ended.
  using OnBlock = std::function<void(const std::function<bool()>& has_ended)>;
  bool wait(Handle handle, std::chrono::nanoseconds time, const OnBlock& on_block);
  // The same until the operation has been put on a GPU's stream, or has ended.
  bool wait_enqueued(Handle handle, std::chrono::nanoseconds time, const OnBlock& on_block);
  // Frees their names: after a wait for that, a thread may submit the next operation of the name,
  // which the stream puts behind this one.
  void note_enqueued(std::span<const std::shared_ptr<Operation>> operations);
  // Returns true when every operation on tensors of a GPU has been put on its stream or has ended,
  // false when `time` has passed.
  bool wait_none_for_gpu(std::chrono::nanoseconds time);
  // Returns true when every operation on tensors of a GPU has ended, or close() has been called;
  // false when `time` has passed.
  bool wait_gpu_done(std::chrono::nanoseconds time);
  // Throws the error given to close() if it is called within `time`, or was called before.
  void check_open(std::chrono::nanoseconds time);
  // REQUIRES: it has not been released.
  std::shared_ptr<Operation> operation_of(Handle handle) const;
  // All operations in flight that have an on_end count as waited for from now on.
  void await_all();
  // Ends a handle and hands out its operation. REQUIRES: it is done.
  std::shared_ptr<Operation> release(Handle handle);

  // Calls `on_done` once, when the operation is done: at once if it is, else from the thread that
  // ends it, without the lock; it must not block. One for each handle. False for a handle that has
  // been released.
  bool watch(Handle handle, std::function<void()> on_done);

  // In the order of submission, without patient ones.
  std::vector<PendingOperation> pending() const;
  // The time at which the oldest operation in flight in each process set was submitted, without
  // patient ones.
  std::map<uint32_t, uint64_t> oldest_ns() const;
  // The number of waits for operations that are not done: threads inside wait(), and await_all().
  int waiting_threads() const;

  // Sets the number of threads of the process that can submit operations. All of them were waiting
  // when they were counted; 0 if that is unknown.
  void note_blocked_threads(int count);
  // Whether each of them waits for an operation that is not done, so that none can submit another.
  bool is_blocked() const;

 private:
  struct Entry {
    std::shared_ptr<Operation> operation;
    bool done = false;
    std::optional<Error> error;
    int waiting = 0;       // threads
    bool awaited = false;  // counts as waited for; false once it is done
    std::function<void()> on_done;
  };
  struct EndedOperation {
    std::shared_ptr<Operation> operation;
    std::optional<Error> error;
  };
  void await_no_more_locked(Entry& entry);
  void end_locked(Handle handle, std::optional<Error> error);
  void finish_locked(const OperationKey& key, std::optional<Error> error);
  template <typename Visit>  // called with each operation that has not ended
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
  // Callbacks to call after the lock is released, by the thread that released it.
  std::vector<EndedOperation> endings_;
  std::vector<std::function<void()>> watchers_;
  std::optional<Error> closed_;
  std::unordered_map<uint32_t, Error> removed_sets_;  // numbers are not used again
  Handle next_ = 1;
  int waiting_ = 0;  // sum over entries_ of waiting threads and of awaited operations
  int blocked_threads_ = 0;
};

}  // namespace hvdtune
