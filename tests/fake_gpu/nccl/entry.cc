// The functions of libnccl.so.2 that every version since 2.14 has.
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "../engine/violations.h"
#include "communicator.h"

using namespace fake_gpu;

namespace {

// Calls between ncclGroupStart and ncclGroupEnd of a thread.
struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<Request> requests;
  std::vector<ncclComm*> aborted;
};
Group& group() {
  static thread_local Group calls;
  return calls;
}

ncclResult_t in_group(ncclResult_t result) {
  if (group().depth > 0 && result != ncclSuccess && result != ncclInProgress) {
    group().error = result;
  }
  return result;
}

ncclResult_t end_group() {
  Group calls = std::exchange(group(), Group{});
  if (calls.error != ncclSuccess) return calls.error;
  ncclResult_t result = launch(calls.requests);
  if (!calls.aborted.empty()) result = abort_together(calls.aborted);
  return result;
}

ncclResult_t check_request(const Request& request) {
  const ncclComm* comm = request.comm;
  if (bytes_of_dtype(request.dtype) == 0) {
    return failed(request.comm, ncclInvalidArgument, "there is no such type");
  }
  const bool reduces = request.kind == Kind::kAllReduce || request.kind == Kind::kReduce ||
                       request.kind == Kind::kReduceScatter;
  if (reduces && request.op >= ncclNumOps) {
    const auto scaling = comm->scalings.find(request.op);
    if (scaling == comm->scalings.end() || scaling->second.dtype != request.dtype) {
      return failed(request.comm, ncclInvalidArgument, "the operation is not of this communicator");
    }
  }
  if (request.op < 0 || request.peer < 0 || request.peer >= comm->size) {
    return failed(request.comm, ncclInvalidArgument, "there is no such operation or rank");
  }
  return ncclSuccess;
}

ncclResult_t submit(const Request& request) {
  const Call call(request.comm, name_of(request.kind));
  if (call.refusal() != ncclSuccess) return in_group(call.refusal());
  if (request.comm->life == Life::kFinalized) {
    violate("use-after-destroy", std::string(name_of(request.kind)) + " is called for " +
                                     request.comm->name + ", which has been finalized.");
    return in_group(ncclInvalidUsage);
  }
  const ncclResult_t result = check_request(request);
  if (result != ncclSuccess) return in_group(result);
  if (group().depth == 0) return launch({request});
  group().requests.push_back(request);
  return ncclSuccess;
}

ncclResult_t join(ncclComm_t* out, int size, const ncclUniqueId& id, int rank, bool blocking) {
  if (out == nullptr || size < 1 || rank < 0 || rank >= size) {
    return failed(nullptr, ncclInvalidArgument, "there is no such rank");
  }
  const std::string name(id.internal, strnlen(id.internal, sizeof id.internal));
  if (!name.starts_with("fake-nccl-") || name.find('/') != std::string::npos) {
    return failed(nullptr, ncclInvalidArgument, "the id is none of ncclGetUniqueId");
  }
  ncclComm* comm = new_communicator(name, size, rank, blocking);
  if (comm == nullptr) return failed(nullptr, ncclUnhandledCudaError, "no device is current");
  const Call call(comm, "ncclCommInitRankConfig", Call::kAny);
  // Another thread may want to abort it while this one waits.
  std::atomic_ref(*out).store(comm);
  return start_job(comm, [comm] {
    const ncclResult_t result = join_region(comm);
    comm->joining = false;
    return result;
  });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = nccl_version();
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string name = new_region_name();
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t comm) {
  static thread_local std::string text;
  text = last_error_of(comm);
  return text.c_str();
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return in_group(join(comm, nranks, id, rank, true));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  bool blocking = true;
  std::string name;
  const ncclResult_t result = read_config(config, blocking, name);
  return in_group(result == ncclSuccess ? join(comm, nranks, id, rank, blocking) : result);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Call call(comm, "ncclCommFinalize");
  return call.refusal() == ncclSuccess ? finalize(comm) : call.refusal();
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  const Call call(comm, "ncclCommDestroy");
  return call.refusal() == ncclSuccess ? destroy(comm) : call.refusal();
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == nullptr) return ncclSuccess;
  if (comm->life == Life::kDestroyed || comm->aborted) {
    violate("use-after-destroy",
            "ncclCommAbort is called for " + comm->name + ", which has been destroyed or aborted.");
    return ncclInvalidArgument;
  }
  if (group().depth == 0) return abort_together({comm});
  group().aborted.push_back(comm);
  return ncclSuccess;
}

// Other threads may ask.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm == nullptr || result == nullptr) return ncclInvalidArgument;
  if (comm->life == Life::kDestroyed || comm->life == Life::kAborted) {
    violate("use-after-destroy", "ncclCommGetAsyncError is called for " + comm->name +
                                     ", which has been destroyed or aborted.");
    return ncclInvalidArgument;
  }
  *result = static_cast<ncclResult_t>(comm->state.load());
  return ncclSuccess;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  const Call call(comm, "ncclCommCount");
  if (call.refusal() == ncclSuccess) *count = comm->size;
  return call.refusal();
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  const Call call(comm, "ncclCommCuDevice");
  if (call.refusal() == ncclSuccess) *device = comm->context->device;
  return call.refusal();
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const Call call(comm, "ncclCommUserRank");
  if (call.refusal() == ncclSuccess) *rank = comm->rank;
  return call.refusal();
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t dtype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const Call call(comm, "ncclRedOpCreatePreMulSum");
  if (call.refusal() != ncclSuccess) return call.refusal();
  if (bytes_of_dtype(dtype) == 0) return failed(comm, ncclInvalidArgument, "there is no such type");
  const bool on_device = residence == ncclScalarDevice;
  const double scale = on_device ? 0.0 : value_of(dtype, scalar);
  *op = ncclNumOps + static_cast<int>(comm->scalings.size());
  while (comm->scalings.contains(*op)) ++*op;
  comm->scalings[*op] = {dtype, on_device, scale, reinterpret_cast<uint64_t>(scalar)};
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const Call call(comm, "ncclRedOpDestroy");
  if (call.refusal() != ncclSuccess) return call.refusal();
  return comm->scalings.erase(op) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return submit({Kind::kAllReduce, from, to, count, dtype, op, 0, comm, stream});
}

ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream) {
  return submit({Kind::kReduce, from, to, count, dtype, op, root, comm, stream});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  return submit({Kind::kReduceScatter, from, to, count, dtype, op, 0, comm, stream});
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, CUstream stream) {
  return submit({Kind::kAllGather, from, to, count, dtype, 0, 0, comm, stream});
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, CUstream stream) {
  return submit({Kind::kBroadcast, from, to, count, dtype, 0, root, comm, stream});
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t dtype, int peer,
                      ncclComm_t comm, CUstream stream) {
  return submit({Kind::kSend, from, nullptr, count, dtype, 0, peer, comm, stream});
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      CUstream stream) {
  return submit({Kind::kRecv, nullptr, to, count, dtype, 0, peer, comm, stream});
}

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group().depth == 0) return failed(nullptr, ncclInvalidUsage, "no group was started");
  if (--group().depth > 0) return ncclSuccess;
  return end_group();
}
}
