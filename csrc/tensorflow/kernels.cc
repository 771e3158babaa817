// Kernels that start an operation and come back at once; the core tells when it has ended. So the
// operations of a graph overlap with each other and with what else can be computed.
#include <absl/status/status.h>
#include <absl/strings/cord.h>
#include <absl/strings/str_cat.h>
#include <tensorflow/core/framework/op_kernel.h>
#include <tensorflow/core/framework/tensor.h>
#include <tensorflow/core/framework/tensor_shape.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "job.h"

namespace hvdtune_tensorflow {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::DataType;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr char kErrorPayload[] = "hvdtune";

const char* numpy_name(DataType type) {
  switch (type) {
    case tensorflow::DT_BOOL:
      return "bool";
    case tensorflow::DT_UINT8:
      return "uint8";
    case tensorflow::DT_INT8:
      return "int8";
    case tensorflow::DT_INT16:
      return "int16";
    case tensorflow::DT_INT32:
      return "int32";
    case tensorflow::DT_INT64:
      return "int64";
    case tensorflow::DT_HALF:
      return "float16";
    case tensorflow::DT_BFLOAT16:
      return "bfloat16";
    case tensorflow::DT_FLOAT:
      return "float32";
    case tensorflow::DT_DOUBLE:
      return "float64";
    default:
      return "unknown";
  }
}

absl::Status not_initialized() {
  return absl::FailedPreconditionError("Horovod has not been initialized; use hvd.init().");
}

// The codes are those that Horovod's users catch; the payload tells hvdtune's own errors apart.
absl::Status error_of(const hvdtune_outcome& outcome, const std::string& tensor) {
  const absl::string_view error = outcome.error;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  if (error == "UsageError" || error == "DuplicateNameError") {
    code = absl::StatusCode::kInvalidArgument;
  } else if (error == "MismatchError") {
    code = absl::StatusCode::kFailedPrecondition;
  }
  absl::Status status(code, outcome.message);
  const std::string payload =
      absl::StrCat(error, " ", outcome.rank, " ", tensor.size(), " ", tensor, outcome.message);
  // A Cord is made of a view: TensorFlow does not export what makes it of a string.
  status.SetPayload(kErrorPayload, absl::Cord(absl::string_view(payload)));
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

Batches& batches() {
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

  // REQUIRES: `run.dims` has room, because its addresses are taken. `output` is null where only
  // negotiation tells its size.
  static void add(Run& run, const Tensor& input, const void* output) {
    const auto& dims = run.dims.emplace_back(input.shape().dim_sizes());
    run.tensors.push_back({numpy_name(input.dtype()), dims.data(), static_cast<int>(dims.size()),
                           input.tensor_data().data(), const_cast<void*>(output)});
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

// How a reduction combines, and what it multiplies by.
class Reduction {
 public:
  explicit Reduction(OpKernelConstruction* construction) {
    int64_t prescale = 0, postscale = 0;
    OP_REQUIRES_OK(construction, construction->GetAttr("reduce_op", &op_));
    OP_REQUIRES_OK(construction, construction->GetAttr("prescale", &prescale));
    OP_REQUIRES_OK(construction, construction->GetAttr("postscale", &postscale));
    std::memcpy(&prescale_, &prescale, sizeof prescale_);
    std::memcpy(&postscale_, &postscale, sizeof postscale_);
  }

  void tell(hvdtune_request& request) const {
    request.reduce_op = op_.c_str();
    request.prescale = prescale_;
    request.postscale = postscale_;
  }

 private:
  std::string op_;
  double prescale_ = 1.0;
  double postscale_ = 1.0;
};

class Allreduce : public Collective {
 public:
  explicit Allreduce(OpKernelConstruction* construction)
      : Collective(construction, "allreduce"), reduction_(construction) {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& request) override {
    reduction_.tell(request);
    const int count = run.context->num_inputs();
    run.dims.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      const Tensor& input = run.context->input(i);
      Tensor* output = nullptr;
      // In place where nobody else uses the tensor.
      const absl::Status status =
          run.context->forward_input_or_allocate_output({i}, i, input.shape(), &output);
      if (!status.ok()) return status;
      add(run, input, output->tensor_data().data());
    }
    return absl::OkStatus();
  }

 private:
  const Reduction reduction_;
};

class Broadcast : public Collective {
 public:
  explicit Broadcast(OpKernelConstruction* construction) : Collective(construction, "broadcast") {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &root_));
  }

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& request) override {
    request.root = static_cast<int>(root_);
    run.dims.reserve(1);
    const Tensor& input = run.context->input(0);
    Tensor* output = nullptr;
    const absl::Status status =
        run.context->forward_input_or_allocate_output({0}, 0, input.shape(), &output);
    if (status.ok()) add(run, input, output->tensor_data().data());
    return status;
  }

 private:
  int64_t root_ = 0;
};

class Reducescatter : public Collective {
 public:
  explicit Reducescatter(OpKernelConstruction* construction)
      : Collective(construction, "reducescatter"), reduction_(construction) {}

 protected:
  absl::Status prepare(hvdtune_job* job, Run& run, hvdtune_request& request) override {
    reduction_.tell(request);
    int size = 1;
    int position = -1;  // the core refuses whoever is not in the set
    api().process_set(job, process_set(), &size, &position);
    const int count = run.context->num_inputs();
    run.dims.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      const Tensor& input = run.context->input(i);
      TensorShape shape = input.shape();
      if (shape.dims() > 0) {  // the core refuses scalars
        const int64_t rows = shape.dim_size(0);
        shape.set_dim(0, rows / size + (position < rows % size ? 1 : 0));
      }
      Tensor* output = nullptr;
      const absl::Status status = run.context->allocate_output(i, shape, &output);
      if (!status.ok()) return status;
      // A rank that gets no rows has no memory for them; the core wants an address all the same.
      const void* to = output->tensor_data().data();
      add(run, input, to != nullptr ? to : input.tensor_data().data());
    }
    return absl::OkStatus();
  }

 private:
  const Reduction reduction_;
};

absl::Status deliver_result(OpKernelContext* context, const hvdtune_outcome& outcome, int index) {
  const hvdtune_result& result = outcome.results[index];
  TensorShape shape;
  for (int i = 0; i < result.dims; ++i) shape.AddDim(result.shape[i]);
  Tensor* output = nullptr;
  const absl::Status status = context->allocate_output(index, shape, &output);
  if (!status.ok()) return status;
  const auto bytes = output->tensor_data();
  if (!bytes.empty()) std::memcpy(const_cast<char*>(bytes.data()), result.bytes, bytes.size());
  return absl::OkStatus();
}

class Allgather : public Collective {
 public:
  explicit Allgather(OpKernelConstruction* construction) : Collective(construction, "allgather") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& /*request*/) override {
    const int count = run.context->num_inputs();
    run.dims.reserve(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) add(run, run.context->input(i), nullptr);
    return absl::OkStatus();
  }

  absl::Status deliver(OpKernelContext* context, const hvdtune_outcome& outcome) override {
    for (int i = 0; i < outcome.result_count; ++i) {
      const absl::Status status = deliver_result(context, outcome, i);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

class Alltoall : public Collective {
 public:
  explicit Alltoall(OpKernelConstruction* construction) : Collective(construction, "alltoall") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& /*request*/) override {
    const auto splits = run.context->input(1).flat<int64_t>();
    run.splits.assign(splits.data(), splits.data() + splits.size());
    run.dims.reserve(1);
    add(run, run.context->input(0), nullptr);
    return absl::OkStatus();
  }

  absl::Status deliver(OpKernelContext* context, const hvdtune_outcome& outcome) override {
    Tensor* received = nullptr;
    absl::Status status =
        context->allocate_output(1, TensorShape({outcome.number_count}), &received);
    if (!status.ok()) return status;
    for (int i = 0; i < outcome.number_count; ++i) {
      received->flat<int32_t>()(i) = static_cast<int32_t>(outcome.numbers[i]);
    }
    return deliver_result(context, outcome, 0);
  }
};

class Join : public Collective {
 public:
  explicit Join(OpKernelConstruction* construction) : Collective(construction, "join") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& /*run*/, hvdtune_request& /*request*/) override {
    return absl::OkStatus();
  }

  absl::Status deliver(OpKernelContext* context, const hvdtune_outcome& outcome) override {
    Tensor* last = nullptr;
    const absl::Status status = context->allocate_output(0, TensorShape({}), &last);
    if (status.ok()) last->scalar<int32_t>()() = static_cast<int32_t>(outcome.numbers[0]);
    return status;
  }
};

class Place : public OpKernel {
 public:
  explicit Place(OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("what", &what_));
    OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
  }

  void Compute(OpKernelContext* context) override {
    const std::shared_ptr<hvdtune_job> job = hvdtune_tensorflow::job();
    hvdtune_place place{};
    OP_REQUIRES(context, job != nullptr && api().place(job.get(), &place) != 0, not_initialized());
    int size = 0;
    int position = -1;
    const auto set = static_cast<uint32_t>(process_set_);
    OP_REQUIRES(context, api().process_set(job.get(), set, &size, &position) != 0,
                absl::InvalidArgumentError(absl::StrCat("there is no process set ", process_set_)));
    Tensor* value = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &value));
    value->scalar<int32_t>()() = chosen(place, size, position);
  }

 private:
  int chosen(const hvdtune_place& place, int size, int position) const {
    if (what_ == "size") return size;
    if (what_ == "rank") return position;
    if (what_ == "included") return position >= 0 ? 1 : 0;
    return what_ == "local_size" ? place.local_size : place.local_rank;
  }

  std::string what_;
  int64_t process_set_ = 0;
};

class MarkStep : public OpKernel {
 public:
  explicit MarkStep(OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(OpKernelContext* /*context*/) override {
    const std::shared_ptr<hvdtune_job> job = hvdtune_tensorflow::job();
    if (job != nullptr) api().mark_step(job.get());
  }
};

// Tensors in other memory than the host's are copied there and back by TensorFlow itself.
#define HVDTUNE_KERNEL(kind) \
  REGISTER_KERNEL_BUILDER(Name("Hvdtune" #kind).Device(tensorflow::DEVICE_CPU), kind)

HVDTUNE_KERNEL(Allreduce);
HVDTUNE_KERNEL(Reducescatter);
HVDTUNE_KERNEL(Allgather);
HVDTUNE_KERNEL(Broadcast);
HVDTUNE_KERNEL(Alltoall);
HVDTUNE_KERNEL(Join);
HVDTUNE_KERNEL(Place);
HVDTUNE_KERNEL(MarkStep);

}  // namespace
}  // namespace hvdtune_tensorflow
