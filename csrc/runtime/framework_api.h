/* What a framework's own library, compiled for the version of the framework that is installed, asks
 * of the core, which is compiled for none. `_native.framework_api()` is the address of the table;
 * the library links nothing of the core.
 *
 * Thread rule: every function may be called from any thread, also while the job ends.
 */
#ifndef HVDTUNE_FRAMEWORK_API_H
#define HVDTUNE_FRAMEWORK_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVDTUNE_FRAMEWORK_API_VERSION 3

/* A job that this process is, or was, part of. Owned by whoever got it. */
struct hvdtune_job;

/* Memory that lives until `done`. `output` is NULL where negotiation tells
 * the size of the result: for allgather and alltoall. */
struct hvdtune_tensor {
  const char* dtype; /* a name of NumPy or ml_dtypes */
  const int64_t* shape;
  int dims;
  const void* input;
  void* output;
};

struct hvdtune_outcome;

/* An operation on tensors in a GPU's memory, when it is on hvdtune's stream. Owned by whoever got
 * it. */
struct hvdtune_operation;

/* The operation is on hvdtune's stream, and `outcome` tells what negotiation has: it lives as long
 * as `operation`, which belongs to the callee. Called at most once, from any thread; has returned
 * when `done` is called. Must not block. */
typedef void (*hvdtune_enqueued)(void* context, struct hvdtune_operation* operation,
                                 const struct hvdtune_outcome* outcome);

struct hvdtune_request {
  const char* op; /* a name of csrc/base/op_table.h */
  const char* name;
  const char* reduce_op; /* a name of csrc/base/reduce_op.h, or NULL */
  int root;
  double prescale;
  double postscale;
  uint32_t process_set;
  const struct hvdtune_tensor* tensors;
  int tensor_count;
  const int64_t* splits; /* of alltoall; without any it divides evenly */
  int split_count;
  int gpu; /* that has all of the memory, as CUDA counts in this process; -1: the host's memory */
  void* stream;              /* of CUDA, of whoever has made the tensors on the GPU */
  hvdtune_enqueued enqueued; /* of tensors on a GPU; or NULL */
};

/* What only negotiation tells: of allgather and alltoall, one for each tensor. */
struct hvdtune_result {
  const void* bytes; /* NULL on a GPU: see copy_result */
  const int64_t* shape;
  int dims;
};

/* All of it lives until `done` returns. */
struct hvdtune_outcome {
  const char* error;   /* the name of a class of hvdtune.errors; NULL without an error */
  const char* message; /* "" without an error */
  int rank;            /* that the error is about, -1 for none */
  const struct hvdtune_result* results;
  int result_count;
  const int64_t* numbers; /* alltoall: rows from each rank of the set; join: the last rank */
  int number_count;
};

/* Called once, from any thread, perhaps before the call that it belongs to returns. Must not
 * block. */
typedef void (*hvdtune_done)(void* context, const struct hvdtune_outcome* outcome);

/* Of this process, as the functions of Horovod's names tell it. */
struct hvdtune_place {
  int rank;
  int size;
  int local_rank;
  int local_size;
  int cross_rank;
  int cross_size;
};

struct hvdtune_framework_api {
  uint32_t version; /* HVDTUNE_FRAMEWORK_API_VERSION: the first field of every version */

  void (*release)(struct hvdtune_job* job);

  /* Starts an operation. With `awaited`, nothing more comes before all that was started has ended,
   * so that collecting more would only delay it. */
  void (*submit)(struct hvdtune_job* job, const struct hvdtune_request* request, int awaited,
                 hvdtune_done done, void* context);
  /* 0 once the job has ended. */
  int (*place)(struct hvdtune_job* job, struct hvdtune_place* place);
  /* How many ranks a process set has, and which of them this process is, -1 for none. 0 where there
   * is no such set. */
  int (*process_set)(struct hvdtune_job* job, uint32_t process_set, int* size, int* position);
  /* A training step has ended. */
  void (*mark_step)(struct hvdtune_job* job);

  void (*release_operation)(struct hvdtune_operation* operation);
  /* What `stream` is given from now on comes after the operation; the host does not wait. NULL, or
   * why not, which lives as long as `operation`. */
  const struct hvdtune_outcome* (*wait_on_stream)(struct hvdtune_job* job,
                                                  struct hvdtune_operation* operation,
                                                  void* stream);
  /* Copies a result to memory of the same GPU, on a `stream` that waits for the operation. Returns
   * what wait_on_stream does. */
  const struct hvdtune_outcome* (*copy_result)(struct hvdtune_job* job,
                                               struct hvdtune_operation* operation, int index,
                                               void* to, void* stream);
};

#ifdef __cplusplus
}
#endif

#endif
