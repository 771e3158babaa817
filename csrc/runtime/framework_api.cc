#include "runtime/framework_api.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/framework.h"
#include "runtime/runtime.h"

// Named by the C interface, and so outside of the namespace.
struct hvdtune_job {
  std::shared_ptr<const hvdtune::RuntimeGuard> guard;
};

struct hvdtune_operation {
  std::shared_ptr<hvdtune::Operation> operation;
  std::vector<hvdtune_result> results;
  hvdtune_outcome outcome;  // as it was put on the stream
  std::string message;      // of `failure`
  hvdtune_outcome failure;
};

namespace hvdtune {
namespace {

hvdtune_outcome outcome_of(const char* error, const char* message, int rank) {
  hvdtune_outcome outcome{};
  outcome.error = error;
  outcome.message = message;
  outcome.rank = rank;
  return outcome;
}

std::vector<hvdtune_result> results_of(const Operation& operation) {
  std::vector<hvdtune_result> results;
  for (const Result& result : operation.results) {
    results.push_back(
        {result.bytes.get(), result.shape.data(), static_cast<int>(result.shape.size())});
  }
  return results;
}

// Refers to both.
hvdtune_outcome outcome_of(const Operation& operation, const std::vector<hvdtune_result>& results) {
  hvdtune_outcome outcome = outcome_of(nullptr, "", -1);
  outcome.results = results.data();
  outcome.result_count = static_cast<int>(results.size());
  outcome.numbers = operation.numbers.data();
  outcome.number_count = static_cast<int>(operation.numbers.size());
  return outcome;
}

// Whom an operation's course is told: `enqueued` before `done`, never beside it.
class RequestCallbacks {
 public:
  RequestCallbacks(const hvdtune_request& request, hvdtune_done done, void* context)
      : enqueued_(request.enqueued), done_(done), context_(context) {}

  void enqueued(const std::shared_ptr<Operation>& operation) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    auto* told = new hvdtune_operation{operation, results_of(*operation), {}, "", {}};
    told->outcome = outcome_of(*operation, told->results);
    enqueued_(context_, told, &told->outcome);
  }

  void ended(const Operation& operation, const Error* error) {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    const std::vector<hvdtune_result> results = results_of(operation);
    const hvdtune_outcome outcome =
        error != nullptr ? outcome_of(exception_of(error->code()), error->what(), error->rank())
                         : outcome_of(operation, results);
    done_(context_, &outcome);
  }

 private:
  const hvdtune_enqueued enqueued_;
  const hvdtune_done done_;
  void* const context_;
  std::mutex mutex_;
  bool ended_ = false;  // guarded by mutex_
};

Submission to_submission(const hvdtune_request& given) {
  auto request = std::make_shared<Request>();
  request->op = op_named(given.op);
  request->name = given.name;
  if (given.reduce_op != nullptr) request->reduce_op = reduce_op_named(given.reduce_op);
  request->root = given.root;
  request->prescale = given.prescale;
  request->postscale = given.postscale;
  request->process_set = given.process_set;
  request->splits.assign(given.splits, given.splits + given.split_count);
  Submission submission;
  for (int i = 0; i < given.tensor_count; ++i) {
    const hvdtune_tensor& tensor = given.tensors[i];
    request->tensors.push_back(
        {dtype_from_name(tensor.dtype), {tensor.shape, tensor.shape + tensor.dims}});
    submission.memory.push_back(
        {static_cast<const uint8_t*>(tensor.input), static_cast<uint8_t*>(tensor.output)});
  }
  request->on_gpu = given.gpu >= 0;
  submission.gpu = {given.gpu, static_cast<CudaStream>(given.stream)};
  submission.request = std::move(request);
  return submission;
}

void submit(hvdtune_job* job, const hvdtune_request* request, int awaited, hvdtune_done done,
            void* context) {
  hvdtune_outcome outcome =
      outcome_of(exception_of(ErrorCode::kShutdown), "hvdtune was shut down", -1);
  std::string message;
  bool begun = false;
  job->guard->with_runtime([&](Runtime& runtime) {
    try {
      Submission submission = to_submission(*request);
      const auto callbacks = std::make_shared<RequestCallbacks>(*request, done, context);
      if (request->enqueued != nullptr) {
        submission.on_enqueued = [callbacks](const std::shared_ptr<Operation>& operation) {
          callbacks->enqueued(operation);
        };
      }
      runtime.submit(std::move(submission),
                     [callbacks](const Operation& operation, const Error* error) {
                       callbacks->ended(operation, error);
                     });
      begun = true;
      if (awaited != 0) runtime.await_submitted();
    } catch (const Error& error) {
      message = error.what();
      outcome = outcome_of(exception_of(error.code()), message.c_str(), error.rank());
    } catch (const std::exception& error) {
      message = error.what();
      outcome = outcome_of(exception_of(ErrorCode::kInternal), message.c_str(), -1);
    }
  });
  if (!begun) done(context, &outcome);
}

int place(hvdtune_job* job, hvdtune_place* place) {
  return job->guard->with_runtime([&](Runtime& runtime) {
    const Topology& here = runtime.topology();
    *place = {here.rank,       here.size,       here.local_rank,
              here.local_size, here.cross_rank, here.cross_size};
  });
}

int process_set(hvdtune_job* job, uint32_t number, int* size, int* position) {
  bool found = false;
  job->guard->with_runtime([&](Runtime& runtime) {
    const std::shared_ptr<const ProcessSets> sets = runtime.process_sets();
    const std::vector<int>* ranks = sets->find(number);
    if (ranks == nullptr) return;
    found = true;
    *size = static_cast<int>(ranks->size());
    const auto own = std::ranges::find(*ranks, runtime.topology().rank);
    *position = own == ranks->end() ? -1 : static_cast<int>(own - ranks->begin());
  });
  return found;
}

void mark_step(hvdtune_job* job) {
  job->guard->with_runtime([](Runtime& runtime) { runtime.mark_step(); });
}

void release(hvdtune_job* job) { delete job; }

void release_operation(hvdtune_operation* operation) { delete operation; }

// Null, or why `act` failed.
template <typename Act>
const hvdtune_outcome* attempt(const hvdtune_job& job, hvdtune_operation& operation,
                               const Act& act) {
  const auto failed = [&](const std::string& message, ErrorCode code, int rank) {
    operation.message = message;
    operation.failure = outcome_of(exception_of(code), operation.message.c_str(), rank);
    return &operation.failure;
  };
  const hvdtune_outcome* failure = nullptr;
  const bool called = job.guard->with_runtime([&](Runtime& runtime) {
    try {
      act(runtime);
    } catch (const Error& error) {
      failure = failed(error.what(), error.code(), error.rank());
    } catch (const std::exception& error) {
      failure = failed(error.what(), ErrorCode::kInternal, -1);
    }
  });
  return called ? failure : failed("hvdtune was shut down", ErrorCode::kShutdown, -1);
}

const hvdtune_outcome* wait_on_stream(hvdtune_job* job, hvdtune_operation* operation,
                                      void* stream) {
  return attempt(*job, *operation, [&](Runtime& runtime) {
    runtime.make_wait(*operation->operation, static_cast<CudaStream>(stream));
  });
}

const hvdtune_outcome* copy_result(hvdtune_job* job, hvdtune_operation* operation, int index,
                                   void* to, void* stream) {
  return attempt(*job, *operation, [&](Runtime& runtime) {
    runtime.copy_result(*operation->operation, static_cast<size_t>(index),
                        static_cast<uint8_t*>(to), static_cast<CudaStream>(stream));
  });
}

const hvdtune_framework_api kApi = {HVDTUNE_FRAMEWORK_API_VERSION,
                                    release,
                                    submit,
                                    place,
                                    process_set,
                                    mark_step,
                                    release_operation,
                                    wait_on_stream,
                                    copy_result};

}  // namespace

uintptr_t framework_api() { return reinterpret_cast<uintptr_t>(&kApi); }

uintptr_t new_job(const Runtime& runtime) {
  return reinterpret_cast<uintptr_t>(new hvdtune_job{runtime.guard()});
}

}  // namespace hvdtune
