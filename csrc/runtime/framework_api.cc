#include "runtime/framework_api.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/framework.h"
#include "runtime/runtime.h"

// Named by the C interface, and so outside of the namespace.
struct hvdtune_job {
  std::shared_ptr<const hvdtune::RuntimeGuard> guard;
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

void tell(hvdtune_done done, void* context, const Operation& operation, const Error* error) {
  if (error != nullptr) {
    const hvdtune_outcome outcome =
        outcome_of(exception_of(error->code()), error->what(), error->rank());
    return done(context, &outcome);
  }
  std::vector<hvdtune_result> results;
  for (const Result& result : operation.results) {
    results.push_back(
        {result.bytes.get(), result.shape.data(), static_cast<int>(result.shape.size())});
  }
  hvdtune_outcome outcome = outcome_of(nullptr, "", -1);
  outcome.results = results.data();
  outcome.result_count = static_cast<int>(results.size());
  outcome.numbers = operation.numbers.data();
  outcome.number_count = static_cast<int>(operation.numbers.size());
  done(context, &outcome);
}

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
      runtime.submit(to_submission(*request),
                     [done, context](const Operation& operation, const Error* error) {
                       tell(done, context, operation, error);
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

const hvdtune_framework_api kApi = {
    HVDTUNE_FRAMEWORK_API_VERSION, release, submit, place, process_set, mark_step};

}  // namespace

uintptr_t framework_api() { return reinterpret_cast<uintptr_t>(&kApi); }

uintptr_t new_job(const Runtime& runtime) {
  return reinterpret_cast<uintptr_t>(new hvdtune_job{runtime.guard()});
}

}  // namespace hvdtune
