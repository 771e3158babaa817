// The operations that a graph of TensorFlow can have, each with its kernel and the shapes that are
// known beforehand.
//
// All are stateful: equal ones must not be merged, nor constant ones carried out by the optimizer
// of graphs. hvdtune.tensorflow.library keeps TensorFlow from putting them in a row for that.
#include <tensorflow/core/framework/common_shape_fns.h>
#include <tensorflow/core/framework/op.h>
#include <tensorflow/core/framework/shape_inference.h>

#include <cstring>
#include <limits>

#include "collective_kernel.h"

namespace hvdtune_tensorflow {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Without a kernel for their device, tensors in other memory than the host's are copied there and
// back by TensorFlow itself.
#define HVDTUNE_OPERATION(kind)                                                        \
  REGISTER_KERNEL_BUILDER(Name("Hvdtune" #kind).Device(tensorflow::DEVICE_CPU), kind); \
  REGISTER_OP("Hvdtune" #kind).SetIsStateful()

// tensor_name: "" for the name of the node. batch: the batch of the operation, as in batches.h; the
// script waits once all batch_size operations have started; 0 for a single operation.
#define HVDTUNE_COLLECTIVE(kind)   \
  HVDTUNE_OPERATION(kind)          \
      .Attr("tensor_name: string") \
      .Attr("process_set: int")    \
      .Attr("batch: int = 0")      \
      .Attr("batch_size: int = 1") \
      .SetIsDistributedCommunication()

// Its tensors may also be in a GPU's memory; hvdtune.tensorflow.operations decides in which jobs.
// host_memory: those inputs and outputs that are in host memory in any case.
#define HVDTUNE_ON_GPU(kind, host_memory) \
  REGISTER_KERNEL_BUILDER(Name("Hvdtune" #kind).Device(tensorflow::DEVICE_GPU) host_memory, kind)

// The core refuses unknown types. A list of types here could not contain float8_e5m2, since
// TensorFlow reads only letters and digits there.
#define HVDTUNE_TYPE "T: type"
#define HVDTUNE_LIST "T: list(type) >= 1"

// prescale, postscale: the bits of a double, because TensorFlow's float attribute has 32.
#define HVDTUNE_REDUCTION(kind)  \
  HVDTUNE_COLLECTIVE(kind)       \
      .Attr(HVDTUNE_LIST)        \
      .Attr("reduce_op: string") \
      .Attr("prescale: int")     \
      .Attr("postscale: int")    \
      .Input("tensors: T")

absl::Status as_inputs(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  return absl::OkStatus();
}

absl::Status with_other_rows(InferenceContext* context, int index) {
  ShapeHandle shape = context->input(index);
  if (context->RankKnown(shape)) {
    if (context->Rank(shape) == 0) {
      return absl::InvalidArgumentError("a scalar has no rows; reshape it to [1]");
    }
    ShapeHandle changed;
    TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &changed));
    shape = changed;
  }
  context->set_output(index, shape);
  return absl::OkStatus();
}

absl::Status all_with_other_rows(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    TF_RETURN_IF_ERROR(with_other_rows(context, i));
  }
  return absl::OkStatus();
}

// A collective that combines tensors.
class Reducing : public Collective {
 protected:
  Reducing(OpKernelConstruction* construction, const char* op) : Collective(construction, op) {
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

class Allreduce : public Reducing {
 public:
  explicit Allreduce(OpKernelConstruction* construction) : Reducing(construction, "allreduce") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& request) override {
    tell(request);
    return add_all_in_place(run);
  }
};

HVDTUNE_ON_GPU(Allreduce, );
HVDTUNE_REDUCTION(Allreduce).Output("reduced: T").SetShapeFn(as_inputs);

class Reducescatter : public Reducing {
 public:
  explicit Reducescatter(OpKernelConstruction* construction)
      : Reducing(construction, "reducescatter") {}

 protected:
  absl::Status prepare(hvdtune_job* job, Run& run, hvdtune_request& request) override {
    tell(request);
    int size = 1;
    int position = -1;  // the core refuses ranks that are not in the set
    api().process_set(job, process_set(), &size, &position);
    for (int i = 0; i < run.context->num_inputs(); ++i) {
      const Tensor& input = run.context->input(i);
      TensorShape shape = input.shape();
      if (shape.dims() > 0) {  // the core refuses scalars
        const int64_t rows = shape.dim_size(0);
        shape.set_dim(0, rows / size + (position < rows % size ? 1 : 0));
      }
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(run.context->allocate_output(i, shape, &output));
      add(run, input, output);
    }
    return absl::OkStatus();
  }
};

HVDTUNE_ON_GPU(Reducescatter, );
HVDTUNE_REDUCTION(Reducescatter).Output("parts: T").SetShapeFn(all_with_other_rows);

absl::Status deliver_result(Run& run, const hvdtune_outcome& outcome, int index) {
  const hvdtune_result& result = outcome.results[index];
  TensorShape shape;
  for (int i = 0; i < result.dims; ++i) shape.AddDim(result.shape[i]);
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(run.context->allocate_output(index, shape, &output));
  const auto bytes = output->tensor_data();
  auto* to = const_cast<char*>(bytes.data());
  if (!run.gpu) {
    if (!bytes.empty()) std::memcpy(to, result.bytes, bytes.size());
    return absl::OkStatus();
  }
  const hvdtune_outcome* failure =
      api().copy_result(run.job.get(), run.operation.get(), index, to, run.gpu.stream);
  return failure == nullptr ? absl::OkStatus() : error_of(*failure, "");
}

class Allgather : public Collective {
 public:
  explicit Allgather(OpKernelConstruction* construction) : Collective(construction, "allgather") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& /*request*/) override {
    for (int i = 0; i < run.context->num_inputs(); ++i) add(run, run.context->input(i), nullptr);
    return absl::OkStatus();
  }

  absl::Status deliver(Run& run, const hvdtune_outcome& outcome) override {
    for (int i = 0; i < outcome.result_count; ++i) {
      TF_RETURN_IF_ERROR(deliver_result(run, outcome, i));
    }
    return absl::OkStatus();
  }
};

HVDTUNE_ON_GPU(Allgather, );
HVDTUNE_COLLECTIVE(Allgather)
    .Attr(HVDTUNE_LIST)
    .Input("tensors: T")
    .Output("gathered: T")
    .SetShapeFn(all_with_other_rows);

class Broadcast : public Collective {
 public:
  explicit Broadcast(OpKernelConstruction* construction) : Collective(construction, "broadcast") {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &root_));
  }

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& request) override {
    request.root = static_cast<int>(root_);
    return add_all_in_place(run);
  }

 private:
  int64_t root_ = 0;
};

HVDTUNE_ON_GPU(Broadcast, );
HVDTUNE_COLLECTIVE(Broadcast)
    .Attr(HVDTUNE_TYPE)
    .Attr("root_rank: int")
    .Input("tensor: T")
    .Output("sent: T")
    .SetShapeFn(as_inputs);

class Alltoall : public Collective {
 public:
  explicit Alltoall(OpKernelConstruction* construction) : Collective(construction, "alltoall") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& run, hvdtune_request& /*request*/) override {
    const auto splits = run.context->input(1).flat<int64_t>();
    run.splits.assign(splits.data(), splits.data() + splits.size());
    add(run, run.context->input(0), nullptr);
    return absl::OkStatus();
  }

  absl::Status deliver(Run& run, const hvdtune_outcome& outcome) override {
    Tensor* received = nullptr;
    TF_RETURN_IF_ERROR(
        run.context->allocate_output(1, TensorShape({outcome.number_count}), &received));
    for (int i = 0; i < outcome.number_count; ++i) {
      if (outcome.numbers[i] > std::numeric_limits<int32_t>::max()) {
        return absl::OutOfRangeError(absl::StrCat(
            "received ", outcome.numbers[i],
            " rows from one rank, which is too large for received_splits (int32, as in Horovod)"));
      }
      received->flat<int32_t>()(i) = static_cast<int32_t>(outcome.numbers[i]);
    }
    return deliver_result(run, outcome, 0);
  }
};

HVDTUNE_ON_GPU(Alltoall, .HostMemory("splits").HostMemory("received_splits"));

// splits: rows for each rank; without any the tensor is divided evenly.
HVDTUNE_COLLECTIVE(Alltoall)
    .Attr(HVDTUNE_TYPE)
    .Input("tensor: T")
    .Input("splits: int64")
    .Output("received: T")
    .Output("received_splits: int32")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
      return with_other_rows(context, 0);
    });

class Join : public Collective {
 public:
  explicit Join(OpKernelConstruction* construction) : Collective(construction, "join") {}

 protected:
  absl::Status prepare(hvdtune_job* /*job*/, Run& /*run*/, hvdtune_request& /*request*/) override {
    return absl::OkStatus();
  }

  absl::Status deliver(Run& run, const hvdtune_outcome& outcome) override {
    Tensor* last = nullptr;
    const absl::Status status = run.context->allocate_output(0, TensorShape({}), &last);
    if (status.ok()) last->scalar<int32_t>()() = static_cast<int32_t>(outcome.numbers[0]);
    return status;
  }
};

HVDTUNE_COLLECTIVE(Join)
    .Output("last_rank: int32")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

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
    OP_REQUIRES(
        context, api().process_set(job.get(), set, &size, &position) != 0,
        absl::InvalidArgumentError(absl::StrCat("process set ", process_set_, " does not exist")));
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

// rank and size are of the process set, -1 for the rank where this process is not in it.
HVDTUNE_OPERATION(Place)
    .Attr("what: {'size', 'rank', 'local_size', 'local_rank', 'included'}")
    .Attr("process_set: int")
    .Output("value: int32")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

class MarkStep : public OpKernel {
 public:
  explicit MarkStep(OpKernelConstruction* construction) : OpKernel(construction) {}

  void Compute(OpKernelContext* /*context*/) override {
    const std::shared_ptr<hvdtune_job> job = hvdtune_tensorflow::job();
    if (job != nullptr) api().mark_step(job.get());
  }
};

HVDTUNE_OPERATION(MarkStep).SetShapeFn(tensorflow::shape_inference::NoOutputs);

}  // namespace
}  // namespace hvdtune_tensorflow
