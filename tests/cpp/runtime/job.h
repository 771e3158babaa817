// A whole job in one process: every rank is a Runtime driven by a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.h"
#include "runtime/job_server.h"
#include "runtime/runtime.h"

namespace hvdtune::testing {

inline constexpr Key kJobKey = {4, 8, 15, 16, 23, 42};

struct JobOptions {
  int size = 2;
  int hosts = 1;
  Setting setting = {};
  bool shared_memory = true;
  std::chrono::nanoseconds heartbeat_timeout = std::chrono::seconds(20);
  LogLevel log_level = LogLevel::kError;
  int control_fanout = 16;
};

inline RuntimeOptions runtime_options(const JobOptions& job, int rank, uint16_t port) {
  RuntimeOptions options;
  options.mesh.rank = rank;
  options.mesh.size = job.size;
  options.mesh.host = "127.0.0." + std::to_string(1 + rank * job.hosts / job.size);
  options.mesh.store_port = port;
  options.mesh.key = kJobKey;
  options.mesh.start_timeout = std::chrono::seconds(60);
  options.mesh.shared_memory = job.shared_memory;
  options.mesh.control_fanout = job.control_fanout;
  options.mesh.arena_slot_bytes = size_t{4} << 20;
  options.setting = job.setting;
  options.heartbeat_timeout = job.heartbeat_timeout;
  options.log_level = job.log_level;
  return options;
}

inline JobServerOptions server_options(int size) {
  JobServerOptions options;
  options.key = kJobKey;
  options.size = size;
  options.start_timeout = std::chrono::seconds(60);
  return options;
}

// Runs body(rank) for every rank at once.
inline void on_all(int size, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
}

class Job {
 public:
  explicit Job(JobOptions options)
      : options_(std::move(options)),
        server_(server_options(options_.size)),
        ranks_(static_cast<size_t>(options_.size)) {
    on_all(options_.size, [this](int rank) {
      ranks_[static_cast<size_t>(rank)] =
          std::make_unique<Runtime>(runtime_options(options_, rank, server_.port()));
    });
  }
  ~Job() { end(); }

  int size() const { return options_.size; }
  JobServer& server() { return server_; }
  Runtime& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  void each(const std::function<void(Runtime&, int)>& body) {
    on_all(options_.size, [&](int rank) { body((*this)[rank], rank); });
  }
  // All ranks leave at once; what they had to say is then with the server.
  void end() {
    on_all(options_.size, [this](int rank) { ranks_[static_cast<size_t>(rank)].reset(); });
  }

 private:
  JobOptions options_;
  JobServer server_;
  std::vector<std::unique_ptr<Runtime>> ranks_;
};

template <typename T>
inline constexpr DType kDTypeOf = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kInt64;

// A submission of one tensor that may still be changed.
struct Draft {
  Request request;
  const void* input = nullptr;
  void* output = nullptr;

  Submission done() const {
    Submission submission;
    submission.request = std::make_shared<const Request>(request);
    if (!request.tensors.empty()) {
      submission.memory = {{static_cast<const uint8_t*>(input), static_cast<uint8_t*>(output)}};
    }
    return submission;
  }
};

template <typename T>
Draft allreduce_of(const std::string& name, std::vector<T>& values, ReduceOp op = ReduceOp::kSum) {
  Draft draft;
  draft.request.name = name;
  draft.request.reduce_op = op;
  draft.request.tensors = {{kDTypeOf<T>, {static_cast<int64_t>(values.size())}}};
  draft.input = values.data();
  draft.output = values.data();
  return draft;
}

inline std::vector<Handle> submit_all(Runtime& runtime, const std::vector<Draft>& drafts) {
  std::vector<Submission> submissions;
  for (const Draft& draft : drafts) submissions.push_back(draft.done());
  return runtime.submit(std::move(submissions));
}

inline Handle submit_one(Runtime& runtime, const Draft& draft) {
  return submit_all(runtime, {draft})[0];
}

// Waits for as long as a test may last.
inline std::shared_ptr<Operation> finish(Runtime& runtime, Handle handle) {
  CHECK(runtime.wait(handle, std::chrono::seconds(60)));
  return runtime.release(handle);
}

template <typename T>
void allreduce_now(Runtime& runtime, const std::string& name, std::vector<T>& values,
                   ReduceOp op = ReduceOp::kSum) {
  finish(runtime, submit_one(runtime, allreduce_of(name, values, op)));
}

// An operation without tensors.
inline Draft plain(OpType op, const std::string& name, std::vector<int64_t> splits = {}) {
  Draft draft;
  draft.request.op = op;
  draft.request.name = name;
  draft.request.splits = std::move(splits);
  return draft;
}

inline Draft barrier_of(const std::string& name) { return plain(OpType::kBarrier, name); }

// What waiting for the handle fails with.
inline Error failure_of(Runtime& runtime, Handle handle) {
  try {
    if (!runtime.wait(handle, std::chrono::seconds(60))) {
      return {ErrorCode::kTimeout, "the operation did not end"};
    }
  } catch (const Error& error) {
    runtime.release(handle);
    return error;
  }
  return {ErrorCode::kInternal, "the operation succeeded"};
}

inline bool contains(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) std::cerr << "no '" << part << "' in: " << text << std::endl;
  return found;
}

}  // namespace hvdtune::testing
