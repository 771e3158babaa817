// Operations in flight on one rank, shared by the threads that ask for them and the cycle thread
// that carries them out.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "wire/message.h"

namespace hvdtune {

using Handle = uint64_t;

// Immutable once added, but for the fields that only the cycle thread uses until it is done and
// only the caller after.
struct Operation {
  Request request;
  const uint8_t* input = nullptr;  // the caller keeps this memory alive until done
  uint8_t* output = nullptr;       // null for allgather: the result is kept in `gathered`
  uint64_t announced_ns = 0;  // by the caller; the cycle thread may collect a while before it tells
  bool was_cached = false;
  std::unique_ptr<uint8_t[]> gathered;
  std::vector<int64_t> gathered_shape;
};

// Thread rule: every member may be called from any thread; mutex_ guards all state.
class OperationTable {
 public:
  // Adds all or none. Throws Error(kDuplicateName), or the error given to close().
  std::vector<Handle> add(std::vector<Operation> operations);

  // For the cycle thread. Operations added since the last call, in order.
  std::vector<std::shared_ptr<Operation>> take_new();
  bool has_new() const;
  // Null if no such name is in flight.
  std::shared_ptr<Operation> find(const std::string& name) const;
  // All at once: a caller that waits for one of them most likely waits for the next as well.
  void complete(std::span<const std::shared_ptr<Operation>> operations);
  void fail(const std::string& name, const Error& error);
  // Fails all in flight, and from then on add(), with `error`; each failure names its tensor. The
  // first close() stands.
  void close(const Error& error);

  // True once done; throws what the operation failed with, Error(kUsage) for an unknown handle.
  bool poll(Handle handle) const;
  // The same, waiting at most `time`. `on_block` is called, without the lock, if it has to wait.
  bool wait(Handle handle, std::chrono::nanoseconds time, const std::function<void()>& on_block);
  // Ends a handle and hands out its operation. REQUIRES: it is done.
  std::shared_ptr<Operation> release(Handle handle);

  // How many threads are inside wait() for an operation that is not done.
  int waiting_threads() const;

 private:
  struct Entry {
    std::shared_ptr<Operation> operation;
    bool done = false;
    std::optional<Error> error;
  };
  void finish_locked(const std::string& name, std::optional<Error> error);
  const Entry& entry(Handle handle) const;
  bool is_done(Handle handle) const;

  mutable std::mutex mutex_;
  std::condition_variable done_;
  std::unordered_map<Handle, Entry> entries_;
  std::unordered_map<std::string, Handle> in_flight_;
  std::vector<std::shared_ptr<Operation>> new_;
  std::optional<Error> closed_;
  Handle next_ = 1;
  int waiting_ = 0;
};

}  // namespace hvdtune
