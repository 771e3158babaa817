// A communicator of the fake NCCL, its kernels, and the rules that every call obeys.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "../engine/engine.h"
#include "../include/fake_nccl.h"
#include "arithmetic.h"
#include "region.h"

namespace fake_gpu {

enum class Kind { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kRecv };
const char* name_of(Kind kind);

// What a call of a collective asks for.
struct Request {
  Kind kind;
  const void* from;
  void* to;
  size_t count;
  int dtype;
  int op;
  int peer;  // or root
  ncclComm* comm;
  CUstream stream;
};

// An operation made by ncclRedOpCreatePreMulSum.
struct Scaling {
  int dtype;
  bool on_device;
  double scale;
  uint64_t address;
};

struct Registered {
  uint64_t begin;
  size_t bytes;
};

// What a communicator and those that were split from it share: by which rank and how many-th
// operation faults are named.
struct Family {
  int rank;
  std::atomic<int64_t> operations{0};
};

enum class Life { kInUse, kFinalized, kDestroyed, kAborted };

}  // namespace fake_gpu

// Never deleted, so that a use after the end is seen. The region goes with the end.
struct ncclComm {
  std::string name;
  uint64_t id = 0;  // the same on all ranks
  int size = 0;
  int rank = 0;
  bool blocking = true;
  fake_gpu::Context* context = nullptr;
  std::shared_ptr<fake_gpu::Family> family;
  std::shared_ptr<fake_gpu::Region> region;  // set by whoever joins, before the state is success

  std::atomic<int> state{ncclSuccess};  // what ncclCommGetAsyncError says
  std::atomic<bool> aborted{false};     // everything in flight leaves
  std::atomic<fake_gpu::Life> life{fake_gpu::Life::kInUse};
  std::atomic<int> jobs{0};       // threads that work for it: joining, launching
  std::atomic<int> kernels{0};    // on streams, not ended
  std::atomic<int> in_graphs{0};  // captured kernels whose graphs are not gone
  std::atomic<bool> joining{false};
  std::atomic<std::thread::id> inside{};  // the thread that is in a call
  std::atomic<std::thread::id> joined_by{};

  // Used by one thread at a time: the caller's, or that of a job, which the caller waits for.
  std::vector<uint64_t> kernels_with;  // by rank, how many have to do with it
  uint64_t splits = 0;
  std::map<int, fake_gpu::Scaling> scalings;
  std::vector<std::unique_ptr<fake_gpu::Registered>> registered;
  // Used by its kernels, of which one runs at a time.
  uint64_t rounds = 0;
  // Guarded by error_mutex.
  std::mutex error_mutex;
  std::string last_error;
};

namespace fake_gpu {

int nccl_version();

// For ncclGetLastError. `comm` may be null.
ncclResult_t failed(ncclComm* comm, ncclResult_t result, const std::string& sentence);
std::string last_error_of(ncclComm* comm);

// The life of a call: refuses what may not be called now, and sees other threads in the library.
class Call {
 public:
  enum Needs { kReady, kAny };
  Call(ncclComm* comm, const char* name, Needs needs = kReady);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ncclResult_t refusal() const { return refusal_; }

 private:
  ncclComm* comm_;
  bool entered_ = false;
  ncclResult_t refusal_ = ncclSuccess;
};

// Of the calling thread's device, and joining; null, if no device is current.
ncclComm* new_communicator(std::string name, int size, int rank, bool blocking);

// Runs `job` in a thread of its own, during which the state is ncclInProgress, or at once if the
// communicator blocks. What it returns becomes the state.
ncclResult_t start_job(ncclComm* comm, std::function<ncclResult_t()> job);

// Joins the others of that name; for jobs.
ncclResult_t join_region(ncclComm* comm);
ncclResult_t split_region(ncclComm* parent, uint64_t number, int color, int key, ncclComm* child);

ncclResult_t launch(const std::vector<Request>& requests);
// Waits until `done`, or the communicator is aborted (false), or everything is released (false).
// `parts` are those of the kernel, none outside of one.
bool wait_in_kernel(ncclComm* comm, const std::vector<KernelPart>& parts,
                    const std::function<bool()>& done);
// Carries them out, in a stream's thread. Returns early when the communicator is aborted.
void run_kernel(ncclComm* comm, const std::vector<KernelPart>& parts,
                const std::vector<Request>& requests);
bool is_point_to_point(Kind kind);
// The rank there of the process and device that this is the card of; -1 if it has none.
int rank_of(const ncclComm* comm, const RankCard& card);

ncclResult_t abort_together(const std::vector<ncclComm*>& comms);
ncclResult_t finalize(ncclComm* comm);
ncclResult_t destroy(ncclComm* comm);

// Reads a ncclConfig_t as the version does. `blocking` is set if it says so.
ncclResult_t read_config(const ncclConfig_t* config, bool& blocking, std::string& name);

}  // namespace fake_gpu
