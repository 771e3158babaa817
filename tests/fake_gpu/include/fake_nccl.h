// The part of NCCL's interface that the fake libnccl.so.2 has: our own declarations, from the
// public documentation.
#pragma once

#include <climits>
#include <cstddef>

#include "fake_cuda.h"

extern "C" {

typedef struct ncclComm* ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
  ncclFloat8e4m3 = 10,
  ncclFloat8e5m2 = 11,
};

enum { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4, ncclNumOps = 5 };
typedef int ncclRedOp_t;

enum ncclScalarResidence_t { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 };

enum { NCCL_CONFIG_UNDEF_INT = INT_MIN, NCCL_SPLIT_NOCOLOR = -1 };
inline constexpr unsigned NCCL_CONFIG_MAGIC = 0xcafebeef;

// Fields are only ever added, at the end: 24 bytes are 2.14's, 40 2.17's, 48 2.18's, 72 2.27's, 80
// 2.28's.
typedef struct {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cgaClusterSize;
  int minCTAs;
  int maxCTAs;
  const char* netName;
  int splitShare;
  int trafficClass;
  const char* commName;
  int collnetEnable;
  int CTAPolicy;
  int shrinkShare;
  int nvlsCTAs;
  int nChannelsPerNetPeer;
  int nvlinkCentricSched;
} ncclConfig_t;

#define FAKE_NCCL_CONFIG_INITIALIZER \
  {sizeof(ncclConfig_t),             \
   NCCL_CONFIG_MAGIC,                \
   22809,                            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   nullptr,                          \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   nullptr,                          \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT,            \
   NCCL_CONFIG_UNDEF_INT}

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result);
ncclResult_t ncclCommCount(ncclComm_t comm, int* count);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t dtype,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclRedOp_t op, ncclComm_t comm, CUstream stream);
ncclResult_t ncclReduce(const void* from, void* to, size_t count, ncclDataType_t dtype,
                        ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, CUstream stream);
ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t dtype,
                           ncclComm_t comm, CUstream stream);
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t dtype, int root,
                           ncclComm_t comm, CUstream stream);
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t dtype, int peer,
                      ncclComm_t comm, CUstream stream);
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                      CUstream stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

// Newer than 2.17: absent from the library in old/.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config);
ncclResult_t ncclMemAlloc(void** pointer, size_t bytes);
ncclResult_t ncclMemFree(void* pointer);
ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
}
