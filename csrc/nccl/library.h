// NCCL, or RCCL, which has the same names: found at run time. The declarations are hvdtune's own.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <memory>
#include <string>

#include "base/dynamic_library.h"
#include "device/driver.h"

namespace hvdtune {

using NcclResult = int;
using NcclComm = struct NcclCommObject*;

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclSystemError = 2;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

enum class NcclType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kInt64 = 4,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
enum class NcclOp : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

struct NcclId {
  std::array<char, 128> bytes{};
};

// As NCCL 2.18 has it; the first 40 bytes are 2.17's, the first 24 those of 2.14. Newer ones read
// what they know from the size and version that are filled in.
struct NcclConfig {
  size_t size;
  unsigned magic = 0xcafebeef;
  unsigned version;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// Every function that is called: what it is called here, and in the library.
#define HVDTUNE_NCCL_FUNCTIONS(X)                                                                  \
  X(get_version, "ncclGetVersion", (int*))                                                         \
  X(unique_id, "ncclGetUniqueId", (NcclId*))                                                       \
  X(init_rank, "ncclCommInitRankConfig", (NcclComm*, int, NcclId, int, NcclConfig*))               \
  X(finalize, "ncclCommFinalize", (NcclComm))                                                      \
  X(destroy, "ncclCommDestroy", (NcclComm))                                                        \
  X(abort, "ncclCommAbort", (NcclComm))                                                            \
  X(async_error, "ncclCommGetAsyncError", (NcclComm, NcclResult*))                                 \
  X(all_reduce, "ncclAllReduce",                                                                   \
    (const void*, void*, size_t, NcclType, NcclOp, NcclComm, CudaStream))                          \
  X(reduce_scatter, "ncclReduceScatter",                                                           \
    (const void*, void*, size_t, NcclType, NcclOp, NcclComm, CudaStream))                          \
  X(all_gather, "ncclAllGather", (const void*, void*, size_t, NcclType, NcclComm, CudaStream))     \
  X(broadcast, "ncclBroadcast", (const void*, void*, size_t, NcclType, int, NcclComm, CudaStream)) \
  X(send, "ncclSend", (const void*, size_t, NcclType, int, NcclComm, CudaStream))                  \
  X(recv, "ncclRecv", (void*, size_t, NcclType, int, NcclComm, CudaStream))                        \
  X(group_start, "ncclGroupStart", ())                                                             \
  X(group_end, "ncclGroupEnd", ())

// Thread rule: NCCL's own: one thread at a time, and hvdtune's runtime always uses the same.
class NcclLibrary {
 public:
  // `path` is the library to load where the process has none yet, or empty: what the system has.
  // Throws Error(kUsage) with a sentence if it cannot be loaded or is too old.
  static std::shared_ptr<NcclLibrary> open(const std::string& path = {});

#define HVDTUNE_DECLARE(name, symbol, parameters) NcclResult(*name) parameters = nullptr;
  HVDTUNE_NCCL_FUNCTIONS(HVDTUNE_DECLARE)
#undef HVDTUNE_DECLARE

  // As in "2.28.9".
  std::string version() const;
  const std::string& path() const { return library_.path(); }
  // A configuration that the loaded version knows: calls do not block.
  NcclConfig config() const;

  // Whether communicators that are aborted in one group do not wait for each other.
  bool has_group_abort() const { return version_ >= 22200; }

  std::string describe(NcclResult result) const;

 private:
  explicit NcclLibrary(DynamicLibrary library);

  DynamicLibrary library_;
  int version_ = 0;  // 10000 * major + 100 * minor + patch
  const char* (*error_text_)(NcclResult) = nullptr;
  const char* (*last_error_)(NcclComm) = nullptr;  // null in old versions
};

}  // namespace hvdtune
