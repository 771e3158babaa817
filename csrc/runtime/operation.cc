#include "runtime/operation.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "runtime/gpu/gpu_work.h"

namespace hvdtune {
namespace {

Error naming_tensor(const Error& error, const std::string& name) {
  return {error.code(), std::string(error.what()) + "; tensor \"" + name + "\" was not completed",
          error.rank(), name};
}

}  // namespace

std::vector<Handle> OperationTable::add(std::vector<Operation> operations) {
  const std::lock_guard lock(mutex_);
  std::vector<Handle> handles;
  handles.reserve(operations.size());
  try {
    for (Operation& operation : operations) {
      const std::string& name = operation.request->name;
      if (closed_) throw naming_tensor(*closed_, name);
      const auto removed = removed_sets_.find(operation.request->process_set);
      if (removed != removed_sets_.end()) throw naming_tensor(removed->second, name);
      if (!in_flight_.emplace(key_of(*operation.request), next_).second) {
        throw Error(ErrorCode::kDuplicateName,
                    "a tensor named \"" + name +
                        "\" is already in flight on this rank; wait for it or use another name",
                    -1, name);
      }
      operation.handle = next_;
      auto shared = std::make_shared<Operation>(std::move(operation));
      new_.push_back(shared);
      Entry& entry = entries_[next_];
      entry.awaited = shared->awaited;
      waiting_ += entry.awaited ? 1 : 0;
      entry.operation = std::move(shared);
      handles.push_back(next_++);
    }
  } catch (const Error&) {
    for (const Handle handle : handles) {
      const Entry& entry = entries_.at(handle);
      waiting_ -= entry.awaited ? 1 : 0;
      in_flight_.erase(key_of(*entry.operation->request));
      entries_.erase(handle);
      new_.pop_back();
    }
    throw;
  }
  return handles;
}

std::vector<std::shared_ptr<Operation>> OperationTable::take_new() {
  const std::lock_guard lock(mutex_);
  return std::exchange(new_, {});
}

bool OperationTable::has_new() const {
  const std::lock_guard lock(mutex_);
  return !new_.empty();
}

std::shared_ptr<Operation> OperationTable::find(const OperationKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto handle = in_flight_.find(key);
  return handle == in_flight_.end() ? nullptr : entries_.at(handle->second).operation;
}

void OperationTable::await_no_more_locked(Entry& entry) {
  waiting_ -= std::exchange(entry.waiting, 0) + (std::exchange(entry.awaited, false) ? 1 : 0);
}

void OperationTable::end_locked(Handle handle, std::optional<Error> error) {
  Entry& entry = entries_.at(handle);
  await_no_more_locked(entry);
  if (entry.on_done) watchers_.push_back(std::move(entry.on_done));
  if (entry.operation->on_end) {
    endings_.push_back({std::move(entry.operation), std::move(error)});
    entries_.erase(handle);
    return;
  }
  entry.done = true;
  entry.error = std::move(error);
}

void OperationTable::finish_locked(const OperationKey& key, std::optional<Error> error) {
  const auto handle = in_flight_.find(key);
  if (handle == in_flight_.end()) return;
  end_locked(handle->second, std::move(error));
  in_flight_.erase(handle);
}

// Wakes the waiting threads, then calls the callbacks.
void OperationTable::notify_endings(std::unique_lock<std::mutex> lock) {
  const std::vector<EndedOperation> endings = std::exchange(endings_, {});
  const std::vector<std::function<void()>> watchers = std::exchange(watchers_, {});
  lock.unlock();
  done_.notify_all();
  for (const auto& [operation, error] : endings) {
    operation->on_end(*operation, error ? &*error : nullptr);
  }
  for (const std::function<void()>& on_done : watchers) on_done();
}

void OperationTable::complete(std::span<const std::shared_ptr<Operation>> operations) {
  std::unique_lock lock(mutex_);
  for (const auto& operation : operations) {
    if (enqueued_.erase(operation->handle) > 0) {
      end_locked(operation->handle, std::nullopt);
    } else {
      finish_locked(key_of(*operation->request), std::nullopt);
    }
  }
  notify_endings(std::move(lock));
}

void OperationTable::fail(std::span<const Failure> failures) {
  std::unique_lock lock(mutex_);
  for (const auto& [key, error] : failures) finish_locked(key, error);
  notify_endings(std::move(lock));
}

void OperationTable::remove_set(uint32_t process_set, const Error& error) {
  std::unique_lock lock(mutex_);
  removed_sets_.emplace(process_set, error);
  std::vector<std::shared_ptr<Operation>> ended;
  for_each_locked([&](const std::shared_ptr<Operation>& operation) {
    if (operation->request->process_set == process_set) ended.push_back(operation);
  });
  for (const auto& operation : ended) {
    const OperationKey key = key_of(*operation->request);
    if (enqueued_.erase(operation->handle) == 0) in_flight_.erase(key);
    end_locked(operation->handle, naming_tensor(error, key.name));
  }
  std::erase_if(
      new_, [&](const auto& operation) { return operation->request->process_set == process_set; });
  notify_endings(std::move(lock));
}

template <typename Visit>
void OperationTable::for_each_locked(Visit visit) const {
  for (const auto& [key, handle] : in_flight_) visit(entries_.at(handle).operation);
  for (const Handle handle : enqueued_) visit(entries_.at(handle).operation);
}

std::vector<PendingOperation> OperationTable::pending() const {
  const std::lock_guard lock(mutex_);
  std::map<Handle, PendingOperation> sorted;
  for_each_locked([&](const std::shared_ptr<Operation>& operation) {
    if (operation->patient) return;
    const auto gpu = operation->gpu ? operation->gpu->progress.load() : GpuProgress::kNone;
    sorted.emplace(operation->handle,
                   PendingOperation{operation->request, operation->announced_ns, gpu});
  });
  std::vector<PendingOperation> list;
  for (auto& [handle, operation] : sorted) list.push_back(std::move(operation));
  return list;
}

std::map<uint32_t, uint64_t> OperationTable::oldest_ns() const {
  const std::lock_guard lock(mutex_);
  std::map<uint32_t, uint64_t> oldest;
  for_each_locked([&](const std::shared_ptr<Operation>& operation) {
    if (operation->patient) return;
    const uint64_t announced_ns = operation->announced_ns;
    const auto [found, is_new] = oldest.try_emplace(operation->request->process_set, announced_ns);
    if (!is_new) found->second = std::min(found->second, announced_ns);
  });
  return oldest;
}

void OperationTable::close(const Error& error) {
  std::unique_lock lock(mutex_);
  if (closed_) return;
  closed_ = error;
  std::vector<std::shared_ptr<Operation>> ended;
  for_each_locked([&](const std::shared_ptr<Operation>& operation) { ended.push_back(operation); });
  for (const auto& operation : ended) {
    end_locked(operation->handle, naming_tensor(error, operation->request->name));
  }
  in_flight_.clear();
  enqueued_.clear();
  new_.clear();
  notify_endings(std::move(lock));
}

const OperationTable::Entry& OperationTable::entry(Handle handle) const {
  const auto found = entries_.find(handle);
  if (found == entries_.end()) {
    throw Error(ErrorCode::kUsage,
                "handle " + std::to_string(handle) +
                    " is unknown: it was already synchronized, or never existed");
  }
  return found->second;
}

bool OperationTable::is_done(Handle handle) const {
  const Entry& found = entry(handle);
  if (found.done && found.error) throw *found.error;
  return found.done;
}

bool OperationTable::poll(Handle handle) const {
  const std::lock_guard lock(mutex_);
  return is_done(handle);
}

bool OperationTable::has_ended_locked(Handle handle) const {
  const auto found = entries_.find(handle);
  return found == entries_.end() || found->second.done;
}

bool OperationTable::wait(Handle handle, std::chrono::nanoseconds time, const OnBlock& on_block) {
  return wait_for(handle, false, time, on_block);
}

bool OperationTable::wait_enqueued(Handle handle, std::chrono::nanoseconds time,
                                   const OnBlock& on_block) {
  return wait_for(handle, true, time, on_block);
}

void OperationTable::note_enqueued(std::span<const std::shared_ptr<Operation>> operations) {
  std::vector<std::shared_ptr<Operation>> told;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& operation : operations) {
      // Not there where the job has failed meanwhile.
      const auto found = in_flight_.find(key_of(*operation->request));
      if (found == in_flight_.end() || found->second != operation->handle) continue;
      in_flight_.erase(found);
      enqueued_.insert(operation->handle);
      if (!operation->on_enqueued) continue;
      await_no_more_locked(entries_.at(operation->handle));
      told.push_back(operation);
    }
  }
  done_.notify_all();
  for (const auto& operation : told) operation->on_enqueued(operation);
}

bool OperationTable::wait_none_for_gpu(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  return done_.wait_until(lock, wait_limit(time), [this] {
    return std::ranges::none_of(in_flight_, [this](const auto& row) {
      return entries_.at(row.second).operation->gpu != nullptr;
    });
  });
}

bool OperationTable::wait_gpu_done(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  return done_.wait_until(lock, wait_limit(time), [this] {
    return closed_ || std::ranges::none_of(entries_, [](const auto& row) {
             return !row.second.done && row.second.operation->gpu != nullptr;
           });
  });
}

void OperationTable::check_open(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  done_.wait_until(lock, wait_limit(time), [this] { return closed_.has_value(); });
  if (closed_) throw Error(*closed_);
}

std::shared_ptr<Operation> OperationTable::operation_of(Handle handle) const {
  const std::lock_guard lock(mutex_);
  return entry(handle).operation;
}

bool OperationTable::wait_for(Handle handle, bool enqueued, std::chrono::nanoseconds time,
                              const OnBlock& on_block) {
  const auto until = wait_limit(time);
  std::unique_lock lock(mutex_);
  if (has_come(handle, enqueued)) return true;
  ++entries_.at(handle).waiting;
  ++waiting_;
  lock.unlock();
  on_block([&] {
    const std::lock_guard look(mutex_);
    return has_ended_locked(handle);
  });
  lock.lock();
  done_.wait_until(lock, until, [&] {
    return has_ended_locked(handle) || (enqueued && enqueued_.contains(handle));
  });
  if (!has_ended_locked(handle)) {
    --entries_.at(handle).waiting;
    --waiting_;
  }
  return has_come(handle, enqueued);
}

void OperationTable::await_all() {
  const std::lock_guard lock(mutex_);
  for (auto& [handle, entry] : entries_) {
    if (!entry.operation->on_end || entry.waiting != 0) continue;
    if (entry.operation->on_enqueued && enqueued_.contains(handle)) continue;
    entry.waiting = 1;
    ++waiting_;
  }
}

std::shared_ptr<Operation> OperationTable::release(Handle handle) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end() || !found->second.done) {
    throw Error(ErrorCode::kUsage, "handle " + std::to_string(handle) + " is unknown or not done");
  }
  std::shared_ptr<Operation> operation = std::move(found->second.operation);
  entries_.erase(found);
  return operation;
}

bool OperationTable::watch(Handle handle, std::function<void()> on_done) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) return false;
    if (!found->second.done) {
      found->second.on_done = std::move(on_done);
      return true;
    }
  }
  on_done();
  return true;
}

int OperationTable::waiting_threads() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

void OperationTable::note_blocked_threads(int count) {
  const std::lock_guard lock(mutex_);
  blocked_threads_ = count;
}

bool OperationTable::is_blocked() const {
  const std::lock_guard lock(mutex_);
  if (blocked_threads_ == 0) return false;
  int threads = 0;
  for (const auto& [handle, entry] : entries_) {
    if (!entry.operation->on_end) threads += entry.waiting;
  }
  return threads >= blocked_threads_;
}

}  // namespace hvdtune
