// What the kernels of all collectives have in common: each starts an operation and comes back at
// once; the core tells when it has ended, or on a GPU, when it has been enqueued. So the operations
// of a graph overlap with each other and with what else can be computed.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/cord.h>
#include <absl/strings/str_cat.h>
#include <tensorflow/core/framework/op_kernel.h>
#include <tensorflow/core/framework/tensor.h>
#include <tensorflow/core/framework/tensor_shape.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "batches.h"
#include "gpu_place.h"
#include "job.h"

namespace hvdtune_tensorflow {

using tensorflow::AsyncOpKernel;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

inline const char* numpy_name(tensorflow::DataType type) {
  static constexpr std::pair<tensorflow::DataType, const char*> kNames[] = {
      {tensorflow::DT_BOOL, "bool"},
      {tensorflow::DT_UINT8, "uint8"},
      {tensorflow::DT_INT8, "int8"},
      {tensorflow::DT_UINT16, "uint16"},
      {tensorflow::DT_INT16, "int16"},
      {tensorflow::DT_INT32, "int32"},
      {tensorflow::DT_INT64, "int64"},
      {tensorflow::DT_HALF, "float16"},
      {tensorflow::DT_BFLOAT16, "bfloat16"},
      {tensorflow::DT_FLOAT, "float32"},
      {tensorflow::DT_DOUBLE, "float64"},
      {tensorflow::DT_FLOAT8_E4M3FN, "float8_e4m3fn"},
      {tensorflow::DT_FLOAT8_E5M2, "float8_e5m2"},
  };
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "unknown";
}

inline absl::Status not_initialized() {
  return absl::FailedPreconditionError("Horovod has not been initialized; use hvd.init().");
}

// The codes are those that Horovod's users catch; the payload tells hvdtune's own errors apart.
// TensorFlow logs it behind the message, so it is something to read.
inline absl::Status error_of(const hvdtune_outcome& outcome, const std::string& tensor) {
  const absl::string_view error = outcome.error;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  if (error == "UsageError" || error == "DuplicateNameError") {
    code = absl::StatusCode::kInvalidArgument;
  } else if (error == "MismatchError") {
    code = absl::StatusCode::kFailedPrecondition;
  }
  absl::Status status(code, outcome.message);
  std::string payload(error);
  if (outcome.rank >= 0) absl::StrAppend(&payload, " by rank ", outcome.rank);
  if (!tensor.empty()) absl::StrAppend(&payload, " at tensor ", tensor);
  // A Cord is made of a view: TensorFlow does not export what makes it of a string.
  status.SetPayload("hvdtune", absl::Cord(absl::string_view(payload)));
  return status;
}

class Collective;

struct ReleaseOperation {
  void operator()(hvdtune_operation* operation) const { api().release_operation(operation); }
};

// One run of a kernel, from the start of the operation to its end. On a GPU TensorFlow goes on
// before that, when the operation is on hvdtune's stream and TensorFlow's waits for it: so a run
// keeps what the GPU still uses.
struct Run {
  Collective* kernel;  // this and the next two: until TensorFlow has been told to go on
  OpKernelContext* context;
  AsyncOpKernel::DoneCallback done;
  std::shared_ptr<hvdtune_job> job;
  GpuPlace gpu;
  std::vector<absl::InlinedVector<int64_t, 4>> dims;
  std::vector<hvdtune_tensor> tensors;
  std::vector<int64_t> splits;
  std::vector<Tensor> kept;  // on a GPU: all of `tensors`, until the operation has ended
  // From when it is on hvdtune's stream on, and what negotiation has told.
  std::unique_ptr<hvdtune_operation, ReleaseOperation> operation;
  const hvdtune_outcome* enqueued = nullptr;
  std::atomic<bool> told{false};  // to go on, or about to be
};

class Collective : public AsyncOpKernel {
 public:
  Collective(OpKernelConstruction* construction, const char* op)
      : AsyncOpKernel(construction), op_(op) {
    std::string given;
    OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &given));
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
    OP_REQUIRES_OK(construction, construction->GetAttr("batch", &batch_));
    OP_REQUIRES_OK(construction, construction->GetAttr("batch_size", &batch_size_));
    tensor_name_ = absl::StrCat(op, ".", given.empty() ? name() : given);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) final {
    const auto run = std::make_shared<Run>();
    run->job = hvdtune_tensorflow::job();
    OP_REQUIRES_ASYNC(context, run->job != nullptr, not_initialized(), done);
    OP_REQUIRES_OK_ASYNC(context, find_gpu(*context, run->gpu), done);
    run->kernel = this;
    run->context = context;
    hvdtune_request request{};
    request.op = op_;
    request.name = tensor_name_.c_str();
    request.prescale = request.postscale = 1.0;
    request.process_set = static_cast<uint32_t>(process_set_);
    request.gpu = run->gpu.number;
    request.stream = run->gpu.stream;
    request.enqueued = run->gpu ? &Collective::enqueued : nullptr;
    run->dims.reserve(static_cast<size_t>(context->num_inputs()));  // whose addresses are taken
    OP_REQUIRES_OK_ASYNC(context, prepare(run->job.get(), *run, request), done);
    run->done = std::move(done);
    request.tensors = run->tensors.data();
    request.tensor_count = static_cast<int>(run->tensors.size());
    request.splits = run->splits.data();
    request.split_count = static_cast<int>(run->splits.size());
    std::vector<Batches::GoOn> waiting;
    const bool is_last = batches().start(batch_, batch_size_, context->step_id(), waiting);
    api().submit(run->job.get(), &request, is_last, &Collective::ended,
                 new std::shared_ptr<Run>(run));
    for (const Batches::GoOn& go_on : waiting) go_on();
  }

 protected:
  // Fills in what the operation has beyond its name, and allocates the outputs that are known.
  virtual absl::Status prepare(hvdtune_job* job, Run& run, hvdtune_request& request) = 0;
  // After an operation without an error; on a GPU, when it is on hvdtune's stream.
  virtual absl::Status deliver(Run& /*run*/, const hvdtune_outcome& /*outcome*/) {
    return absl::OkStatus();
  }

  uint32_t process_set() const { return static_cast<uint32_t>(process_set_); }

  // An input whose result goes to `output`; null where only negotiation tells its size.
  static void add(Run& run, const Tensor& input, const Tensor* output) {
    const auto& dims = run.dims.emplace_back(input.shape().dim_sizes());
    const char* from = input.tensor_data().data();
    const char* to = nullptr;
    if (output != nullptr) {
      // A rank that gets no rows has no memory for them; the core wants an address all the same.
      to = output->tensor_data().data() != nullptr ? output->tensor_data().data() : from;
    }
    run.tensors.push_back({numpy_name(input.dtype()), dims.data(), static_cast<int>(dims.size()),
                           from, const_cast<char*>(to)});
    if (!run.gpu) return;
    run.kept.push_back(input);
    if (output != nullptr) run.kept.push_back(*output);
  }
  // Inputs with results of their shape, in place where nobody else uses the tensor.
  static absl::Status add_all_in_place(Run& run) {
    for (int i = 0; i < run.context->num_inputs(); ++i) {
      const Tensor& input = run.context->input(i);
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(
          run.context->forward_input_or_allocate_output({i}, i, input.shape(), &output));
      add(run, input, output);
    }
    return absl::OkStatus();
  }

 private:
  // By the core, when the operation is on hvdtune's stream.
  static void enqueued(void* given, hvdtune_operation* operation, const hvdtune_outcome* outcome) {
    const std::shared_ptr<Run> run = *static_cast<std::shared_ptr<Run>*>(given);
    run->operation.reset(operation);
    run->enqueued = outcome;
    const auto when_all_have_started = [run] {
      if (!run->told.exchange(true)) go_on(*run);
    };
    const int64_t batch = run->kernel->batch_;
    if (batches().keep(batch, run->context->step_id(), when_all_have_started)) return;
    run->told = true;
    schedule(*run, [run] { go_on(*run); });
  }

  // By the core, when the operation has ended. If that is with an error after TensorFlow was told
  // to go on, the next operation has the error, too.
  static void ended(void* given, const hvdtune_outcome* outcome) {
    const std::unique_ptr<std::shared_ptr<Run>> owner(static_cast<std::shared_ptr<Run>*>(given));
    const std::shared_ptr<Run>& run = *owner;
    run->kept.clear();
    if (run->told.exchange(true)) return;
    if (!run->gpu) return finish(*run, result_of(*run, *outcome));
    const std::string& name = run->kernel->tensor_name_;
    const auto status = outcome->error == nullptr ? absl::OkStatus() : error_of(*outcome, name);
    schedule(*run, [run, status] { finish(*run, status); });
  }

  // What TensorFlow puts on its stream from now on comes after the operation.
  static void go_on(Run& run) {
    const hvdtune_outcome* failure =
        api().wait_on_stream(run.job.get(), run.operation.get(), run.gpu.stream);
    finish(run, result_of(run, failure != nullptr ? *failure : *run.enqueued));
  }

  static absl::Status result_of(Run& run, const hvdtune_outcome& outcome) {
    if (outcome.error != nullptr) return error_of(outcome, run.kernel->tensor_name_);
    return run.kernel->deliver(run, outcome);
  }

  // On a thread of TensorFlow's: it may wait for memory of the GPU, or at the end of a session's
  // step for all that the GPU does, while the core's threads must see to that.
  static void schedule(const Run& run, std::function<void()> step) {
    run.context->device()->tensorflow_cpu_worker_threads()->workers->Schedule(std::move(step));
  }

  static void finish(Run& run, const absl::Status& status) {
    if (!status.ok()) run.context->SetStatus(status);
    const DoneCallback done = std::move(run.done);
    done();
  }

  const char* const op_;
  std::string tensor_name_;
  int64_t process_set_ = 0;
  int64_t batch_ = 0;
  int64_t batch_size_ = 1;
};

}  // namespace hvdtune_tensorflow
