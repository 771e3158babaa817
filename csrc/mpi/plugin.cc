// The plugin, the only file that knows mpi.h. Compiled by itself: it includes nothing of the core.
#include "plugin.h"

#include <mpi.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

struct hvdtune_mpi_comm {
  MPI_Comm value = MPI_COMM_NULL;
};

// Arrays that a non-blocking call reads must live as long as it runs.
struct hvdtune_mpi_request {
  MPI_Request value = MPI_REQUEST_NULL;
  std::array<std::vector<int>, 4> arrays;
  hvdtune_mpi_comm* duplicate = nullptr;
};

namespace {

using Comm = hvdtune_mpi_comm;
using Request = hvdtune_mpi_request;

MPI_Comm of(const Comm* comm) { return comm == nullptr ? MPI_COMM_WORLD : comm->value; }

MPI_Datatype type_of(int type) {
  const MPI_Datatype types[] = {MPI_BYTE, MPI_INT32_T, MPI_INT64_T, MPI_FLOAT, MPI_DOUBLE};
  return types[type];  // by hvdtune_mpi_type
}

MPI_Op op_of(int op) {
  const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_PROD};
  return ops[op];  // by hvdtune_mpi_op
}

// `call` starts an operation on the request it is given.
template <typename Call>
int start(Request** out, Call call) {
  auto* request = new Request;
  const int error = call(*request);
  if (error != MPI_SUCCESS) {
    delete request;
    return error;
  }
  *out = request;
  return MPI_SUCCESS;
}

const int* keep(Request& request, size_t slot, const int* values, int count) {
  request.arrays[slot].assign(values, values + count);
  return request.arrays[slot].data();
}

int size_of(const Comm* comm) {
  int size = 0;
  MPI_Comm_size(of(comm), &size);
  return size;
}

const char* library_version() {
  static char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

void error_text(int error, char* text, int capacity) {
  char message[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(error, message, &length);
  std::strncpy(text, message, static_cast<size_t>(capacity) - 1);
  text[capacity - 1] = 0;
}

int state(int* initialized, int* finalized) {
  MPI_Initialized(initialized);
  return MPI_Finalized(finalized);
}

int initialize() {
  int provided = 0;
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
}

int thread_level(int* level) {
  int provided = 0;
  const int error = MPI_Query_thread(&provided);
  *level = provided >= MPI_THREAD_MULTIPLE     ? HVDTUNE_MPI_THREAD_MULTIPLE
           : provided >= MPI_THREAD_SERIALIZED ? HVDTUNE_MPI_THREAD_SERIALIZED
           : provided >= MPI_THREAD_FUNNELED   ? HVDTUNE_MPI_THREAD_FUNNELED
                                               : HVDTUNE_MPI_THREAD_SINGLE;
  return error;
}

int finalize() { return MPI_Finalize(); }

int duplicate(const void* handle, Comm** out, Request** out_request) {
  MPI_Comm parent = MPI_COMM_WORLD;
  if (handle != nullptr) std::memcpy(&parent, handle, sizeof parent);
  auto* comm = new Comm;
  const int error = start(out_request, [&](Request& request) {
    request.duplicate = comm;
    return MPI_Comm_idup(parent, &comm->value, &request.value);
  });
  if (error != MPI_SUCCESS) {
    delete comm;
    return error;
  }
  *out = comm;
  return MPI_SUCCESS;
}

int subset(Comm* parent, const int* ranks, int count, int tag, Comm** out) {
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group chosen = MPI_GROUP_NULL;
  MPI_Comm_group(of(parent), &all);
  int error = MPI_Group_incl(all, count, ranks, &chosen);
  if (error == MPI_SUCCESS) {
    auto* comm = new Comm;
    error = MPI_Comm_create_group(of(parent), chosen, tag, &comm->value);
    if (error == MPI_SUCCESS) {
      MPI_Comm_set_errhandler(comm->value, MPI_ERRORS_RETURN);
      *out = comm;
    } else {
      delete comm;
    }
    MPI_Group_free(&chosen);
  }
  MPI_Group_free(&all);
  return error;
}

int release(Comm* comm) {
  const int error = MPI_Comm_free(&comm->value);
  delete comm;
  return error;
}

int place(Comm* comm, int* rank, int* size) {
  MPI_Comm_rank(of(comm), rank);
  return MPI_Comm_size(of(comm), size);
}

int node(Comm* comm, int* lowest_rank) {
  MPI_Comm local = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_rank(of(comm), &rank);
  int error = MPI_Comm_split_type(of(comm), MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Allreduce(&rank, lowest_rank, 1, MPI_INT, MPI_MIN, local);
  MPI_Comm_free(&local);
  return error;
}

int test(Request* request, int* done) {
  const int error = MPI_Test(&request->value, done, MPI_STATUS_IGNORE);
  if (error != MPI_SUCCESS || !*done) return error;
  if (request->duplicate != nullptr) {
    MPI_Comm_set_errhandler(request->duplicate->value, MPI_ERRORS_RETURN);
  }
  delete request;
  return error;
}

int barrier(Comm* comm, Request** out) {
  return start(out, [&](Request& request) { return MPI_Ibarrier(of(comm), &request.value); });
}

int bcast(Comm* comm, void* bytes, int count, int root, Request** out) {
  return start(out, [&](Request& request) {
    return MPI_Ibcast(bytes, count, MPI_BYTE, root, of(comm), &request.value);
  });
}

int allreduce(Comm* comm, void* inout, int count, int type, int op, Request** out) {
  return start(out, [&](Request& request) {
    return MPI_Iallreduce(MPI_IN_PLACE, inout, count, type_of(type), op_of(op), of(comm),
                          &request.value);
  });
}

int reduce_scatter(Comm* comm, const void* in, void* result, const int* counts, int type, int op,
                   Request** out) {
  return start(out, [&](Request& request) {
    return MPI_Ireduce_scatter(in, result, keep(request, 0, counts, size_of(comm)), type_of(type),
                               op_of(op), of(comm), &request.value);
  });
}

int allgatherv(Comm* comm, const void* in, int count, void* result, const int* counts,
               const int* offsets, Request** out) {
  const int size = size_of(comm);
  return start(out, [&](Request& request) {
    return MPI_Iallgatherv(in, count, MPI_BYTE, result, keep(request, 0, counts, size),
                           keep(request, 1, offsets, size), MPI_BYTE, of(comm), &request.value);
  });
}

int alltoallv(Comm* comm, const void* in, const int* in_counts, const int* in_offsets, void* result,
              const int* out_counts, const int* out_offsets, Request** out) {
  const int size = size_of(comm);
  return start(out, [&](Request& request) {
    return MPI_Ialltoallv(in, keep(request, 0, in_counts, size), keep(request, 1, in_offsets, size),
                          MPI_BYTE, result, keep(request, 2, out_counts, size),
                          keep(request, 3, out_offsets, size), MPI_BYTE, of(comm), &request.value);
  });
}

constexpr hvdtune_mpi_functions kFunctions = {
    HVDTUNE_MPI_PLUGIN_VERSION,
    library_version,
    error_text,
    state,
    initialize,
    thread_level,
    finalize,
    duplicate,
    subset,
    release,
    place,
    node,
    test,
    barrier,
    bcast,
    allreduce,
    reduce_scatter,
    allgatherv,
    alltoallv,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const hvdtune_mpi_functions*
hvdtune_mpi_plugin() {
  return &kFunctions;
}
