// The operations that a graph of TensorFlow can have, with the shapes that are known beforehand.
//
// All are stateful: equal ones must not be merged, nor constant ones carried out by the optimizer
// of graphs. hvdtune.tensorflow.library keeps TensorFlow from putting them in a row for that.
#include <absl/status/status.h>
#include <tensorflow/core/framework/common_shape_fns.h>
#include <tensorflow/core/framework/op.h>
#include <tensorflow/core/framework/shape_inference.h>

namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

#define HVDTUNE_TYPES "{bool, uint8, int8, int16, int32, int64, half, bfloat16, float, double}"

// tensor_name: "" for the name of the node. prescale, postscale: the bits of a double, because
// TensorFlow's float attribute has 32. batch: operations after which the script waits; the last of
// batch_size that is started says so; 0 for one by itself.
#define HVDTUNE_COLLECTIVE(name)   \
  REGISTER_OP(name)                \
      .Attr("tensor_name: string") \
      .Attr("process_set: int")    \
      .Attr("batch: int = 0")      \
      .Attr("batch_size: int = 1") \
      .SetIsStateful()             \
      .SetIsDistributedCommunication()

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
    const absl::Status status = context->ReplaceDim(shape, 0, context->UnknownDim(), &changed);
    if (!status.ok()) return status;
    shape = changed;
  }
  context->set_output(index, shape);
  return absl::OkStatus();
}

absl::Status all_with_other_rows(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    const absl::Status status = with_other_rows(context, i);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

HVDTUNE_COLLECTIVE("HvdtuneAllreduce")
    .Attr("T: list(" HVDTUNE_TYPES ") >= 1")
    .Attr("reduce_op: string")
    .Attr("prescale: int")
    .Attr("postscale: int")
    .Input("tensors: T")
    .Output("reduced: T")
    .SetShapeFn(as_inputs);

HVDTUNE_COLLECTIVE("HvdtuneReducescatter")
    .Attr("T: list(" HVDTUNE_TYPES ") >= 1")
    .Attr("reduce_op: string")
    .Attr("prescale: int")
    .Attr("postscale: int")
    .Input("tensors: T")
    .Output("parts: T")
    .SetShapeFn(all_with_other_rows);

HVDTUNE_COLLECTIVE("HvdtuneAllgather")
    .Attr("T: list(" HVDTUNE_TYPES ") >= 1")
    .Input("tensors: T")
    .Output("gathered: T")
    .SetShapeFn(all_with_other_rows);

HVDTUNE_COLLECTIVE("HvdtuneBroadcast")
    .Attr("T: " HVDTUNE_TYPES)
    .Attr("root_rank: int")
    .Input("tensor: T")
    .Output("sent: T")
    .SetShapeFn(as_inputs);

// splits: rows for each rank; without any the tensor is divided evenly.
HVDTUNE_COLLECTIVE("HvdtuneAlltoall")
    .Attr("T: " HVDTUNE_TYPES)
    .Input("tensor: T")
    .Input("splits: int64")
    .Output("received: T")
    .Output("received_splits: int32")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
      return with_other_rows(context, 0);
    });

HVDTUNE_COLLECTIVE("HvdtuneJoin")
    .Output("last_rank: int32")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

// rank and size are of the process set, -1 for the rank where this process is not in it.
REGISTER_OP("HvdtunePlace")
    .Attr("what: {'size', 'rank', 'local_size', 'local_rank', 'included'}")
    .Attr("process_set: int")
    .Output("value: int32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

REGISTER_OP("HvdtuneMarkStep").SetIsStateful().SetShapeFn(tensorflow::shape_inference::NoOutputs);

}  // namespace
