// What the kernels of all collectives have in common: each starts an operation and comes back at
// once; the core tells when it has ended. So the operations of a graph overlap with each other and
// with what else can be computed.
#pragma once

#include <absl/status/status.h>
#include <absl/strings/cord.h>
#include <absl/strings/str_cat.h>
#include <tensorflow/core/framework/op_kernel.h>
#include <tensorflow/core/framework/tensor.h>
#include <tensorflow/core/framework/tensor_shape.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

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

// How many operations of each batch have been started in the latest run of the function that they
// are in.
class Batches {
 public:
  // Counts one; true if it is the last.
  bool is_last(int64_t batch, int64_t size, int64_t run) {
    if (batch == 0) return true;
    const std::lock_guard<std::mutex> lock(mutex_);
    Started& started = started_[batch];
    if (started.run != run) started = {run, 0};  // the one before may have failed halfway
    if (++started.count < size) return false;
    started.count = 0;
    return true;
  }

 private:
  struct Started {
    int64_t run = -1;
    int64_t count = 0;
  };
  std::mutex mutex_;
  std::unordered_map<int64_t, Started> started_;  // guarded by mutex_
};

inline Batches& batches() {
  static Batches all;
  return all;
}

class Collective;

// One run of a kernel, from the start of the operation to its end.
struct Run {
  Collective* kernel;
  OpKernelContext* context;
  AsyncOpKernel::DoneCallback done;
  std::vector<absl::InlinedVector<int64_t, 4>> dims;
  std::vector<hvdtune_tensor> tensors;
  std::vector<int64_t> splits;
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
    const std::shared_ptr<hvdtune_job> job = hvdtune_tensorflow::job();
    OP_REQUIRES_ASYNC(context, job != nullptr, not_initialized(), done);
    auto run = std::make_unique<Run>();
    run->kernel = this;
    run->context = context;
    hvdtune_request request{};
    request.op = op_;
    request.name = tensor_name_.c_str();
    request.prescale = request.postscale = 1.0;
    request.process_set = static_cast<uint32_t>(process_set_);
    request.gpu = -1;
    run->dims.reserve(static_cast<size_t>(context->num_inputs()));  // whose addresses are taken
    OP_REQUIRES_OK_ASYNC(context, prepare(job.get(), *run, request), done);
    run->done = std::move(done);
    request.tensors = run->tensors.data();
    request.tensor_count = static_cast<int>(run->tensors.size());
    request.splits = run->splits.data();
    request.split_count = static_cast<int>(run->splits.size());
    const bool awaited = batches().is_last(batch_, batch_size_, context->step_id());
    api().submit(job.get(), &request, awaited, &Collective::ended, run.release());
  }

 protected:
  // Fills in what the operation has beyond its name, and allocates the outputs that are known.
  virtual absl::Status prepare(hvdtune_job* job, Run& run, hvdtune_request& request) = 0;
  // After an operation without an error.
  virtual absl::Status deliver(OpKernelContext* /*context*/, const hvdtune_outcome& /*outcome*/) {
    return absl::OkStatus();
  }

  uint32_t process_set() const { return static_cast<uint32_t>(process_set_); }

  // An input whose result goes to `output`; null where only negotiation tells its size.
  static void add(Run& run, const Tensor& input, const void* output) {
    const auto& dims = run.dims.emplace_back(input.shape().dim_sizes());
    run.tensors.push_back({numpy_name(input.dtype()), dims.data(), static_cast<int>(dims.size()),
                           input.tensor_data().data(), const_cast<void*>(output)});
  }
  // Inputs with results of their shape, in place where nobody else uses the tensor.
  static absl::Status add_all_in_place(Run& run) {
    for (int i = 0; i < run.context->num_inputs(); ++i) {
      const Tensor& input = run.context->input(i);
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(
          run.context->forward_input_or_allocate_output({i}, i, input.shape(), &output));
      add(run, input, output->tensor_data().data());
    }
    return absl::OkStatus();
  }

 private:
  static void ended(void* given, const hvdtune_outcome* outcome) {
    const std::unique_ptr<Run> run(static_cast<Run*>(given));
    OpKernelContext* context = run->context;
    const absl::Status status = outcome->error == nullptr
                                    ? run->kernel->deliver(context, *outcome)
                                    : error_of(*outcome, run->kernel->tensor_name_);
    if (!status.ok()) context->SetStatus(status);
    run->done();
  }

  const char* const op_;
  std::string tensor_name_;
  int64_t process_set_ = 0;
  int64_t batch_ = 0;
  int64_t batch_size_ = 1;
};

}  // namespace hvdtune_tensorflow
