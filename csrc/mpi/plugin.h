/* What the core asks of an MPI library. The core links no MPI: a plugin, compiled against one MPI,
 * exports `hvdtune_mpi_plugin` and is loaded where a process needs it.
 *
 * Collectives are non-blocking, so that a caller can give up when a rank has died. Every function
 * returns an MPI error code, 0 for success. Counts are elements and fit an int: callers cut what
 * is larger.
 *
 * Thread rule: as MPI's for the thread level in force; one collective at a time and communicator.
 */
#ifndef HVDTUNE_MPI_PLUGIN_H
#define HVDTUNE_MPI_PLUGIN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HVDTUNE_MPI_PLUGIN_VERSION 1

struct hvdtune_mpi_comm;
struct hvdtune_mpi_request;

enum hvdtune_mpi_type {
  HVDTUNE_MPI_BYTE,
  HVDTUNE_MPI_INT32,
  HVDTUNE_MPI_INT64,
  HVDTUNE_MPI_FLOAT32,
  HVDTUNE_MPI_FLOAT64
};
enum hvdtune_mpi_op { HVDTUNE_MPI_SUM, HVDTUNE_MPI_MIN, HVDTUNE_MPI_MAX, HVDTUNE_MPI_PRODUCT };

enum hvdtune_mpi_thread_level {
  HVDTUNE_MPI_THREAD_SINGLE,
  HVDTUNE_MPI_THREAD_FUNNELED,
  HVDTUNE_MPI_THREAD_SERIALIZED,
  HVDTUNE_MPI_THREAD_MULTIPLE
};

struct hvdtune_mpi_functions {
  uint32_t version; /* HVDTUNE_MPI_PLUGIN_VERSION: the first field of every version */

  const char* (*library_version)(void); /* may be called at any time; the plugin's memory */
  void (*error_text)(int error, char* text, int capacity);

  int (*state)(int* initialized, int* finalized);
  int (*initialize)(void); /* asks for THREAD_MULTIPLE */
  int (*thread_level)(int* level);
  int (*finalize)(void);

  /* A duplicate of *(MPI_Comm*)handle, or of MPI_COMM_WORLD when handle is NULL. All its ranks must
   * call; the duplicate may be used once the request is done. */
  int (*duplicate)(const void* handle, struct hvdtune_mpi_comm** out,
                   struct hvdtune_mpi_request** request);
  /* Those ranks of parent (MPI_COMM_WORLD when NULL), in that order. They alone must call, and each
   * waits for the others. */
  int (*subset)(struct hvdtune_mpi_comm* parent, const int* ranks, int count, int tag,
                struct hvdtune_mpi_comm** out);
  int (*release)(struct hvdtune_mpi_comm* comm);
  /* Of MPI_COMM_WORLD when comm is NULL. */
  int (*place)(struct hvdtune_mpi_comm* comm, int* rank, int* size);
  /* The lowest rank of comm on this process's node. All ranks must call. */
  int (*node)(struct hvdtune_mpi_comm* comm, int* lowest_rank);

  /* Ends the request, which is then gone, when *done. */
  int (*test)(struct hvdtune_mpi_request* request, int* done);

  /* Named as in MPI. */
  int (*barrier)(struct hvdtune_mpi_comm* comm, struct hvdtune_mpi_request** request);
  int (*bcast)(struct hvdtune_mpi_comm* comm, void* bytes, int count, int root,
               struct hvdtune_mpi_request** request);
  int (*allreduce)(struct hvdtune_mpi_comm* comm, void* inout, int count, int type, int op,
                   struct hvdtune_mpi_request** request);
  /* `out` receives this rank's counts[rank] elements. */
  int (*reduce_scatter)(struct hvdtune_mpi_comm* comm, const void* in, void* out, const int* counts,
                        int type, int op, struct hvdtune_mpi_request** request);
  int (*allgatherv)(struct hvdtune_mpi_comm* comm, const void* in, int count, void* out,
                    const int* counts, const int* offsets, struct hvdtune_mpi_request** request);
  int (*alltoallv)(struct hvdtune_mpi_comm* comm, const void* in, const int* in_counts,
                   const int* in_offsets, void* out, const int* out_counts, const int* out_offsets,
                   struct hvdtune_mpi_request** request);
};

/* The one exported symbol; the caller checks `version` before anything else. */
const struct hvdtune_mpi_functions* hvdtune_mpi_plugin(void);
typedef const struct hvdtune_mpi_functions* (*hvdtune_mpi_plugin_function)(void);

#ifdef __cplusplus
}
#endif

#endif
