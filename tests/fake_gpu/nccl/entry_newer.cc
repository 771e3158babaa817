// The functions that came with NCCL 2.18 and 2.19; the library in old/ is built without this file.
#include <algorithm>

#include "../engine/violations.h"
#include "communicator.h"

using namespace fake_gpu;

extern "C" {

ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t* out,
                           ncclConfig_t* config) {
  const Call call(parent, "ncclCommSplit");
  if (call.refusal() != ncclSuccess) return call.refusal();
  bool blocking = parent->blocking;
  std::string name;
  const ncclResult_t result = read_config(config, blocking, name);
  if (result != ncclSuccess) return result;
  const uint64_t number = ++parent->splits;
  *out = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) {
    return start_job(parent, [=] { return split_region(parent, number, color, key, nullptr); });
  }
  ncclComm* child = new_communicator(
      parent->name + "-" + std::to_string(number) + "-" + std::to_string(color), 1, 0, blocking);
  if (child == nullptr) return failed(parent, ncclUnhandledCudaError, "no device is current");
  child->family = parent->family;
  *out = child;
  // Its state is the child's; the parent counts the job, so that aborting it waits.
  ++parent->jobs;
  return start_job(child, [=] {
    const ncclResult_t joined = split_region(parent, number, color, key, child);
    child->joining = false;
    --parent->jobs;
    return joined;
  });
}

ncclResult_t ncclMemAlloc(void** pointer, size_t bytes) {
  const std::lock_guard lock(engine().mutex);
  if (current_context() == nullptr || bytes == 0) return ncclInvalidArgument;
  const Allocation* memory = allocate(current_context(), bytes, Memory::kNccl);
  if (memory == nullptr) return failed(nullptr, ncclUnhandledCudaError, "out of memory");
  *pointer = reinterpret_cast<void*>(memory->base);
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* pointer) {
  std::unique_lock lock(engine().mutex);
  const CUresult result = release_memory(lock, reinterpret_cast<uint64_t>(pointer), false);
  return result == CUDA_SUCCESS ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* buffer, size_t bytes, void** handle) {
  const Call call(comm, "ncclCommRegister");
  if (call.refusal() != ncclSuccess) return call.refusal();
  const auto address = reinterpret_cast<uint64_t>(buffer);
  {
    const std::lock_guard lock(engine().mutex);
    const Allocation* memory = allocation_at(address);
    if (memory == nullptr) return failed(comm, ncclInvalidArgument, "the buffer is not allocated");
    if (memory->memory != Memory::kNccl) {
      violate("plain-registered", described(address) +
                                      " is registered, but does not come from ncclMemAlloc; that "
                                      "may hang, and crash on failure.");
    }
  }
  comm->registered.push_back(std::make_unique<Registered>(Registered{address, bytes}));
  *handle = comm->registered.back().get();
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const Call call(comm, "ncclCommDeregister");
  if (call.refusal() != ncclSuccess) return call.refusal();
  const auto erased =
      std::erase_if(comm->registered, [&](const auto& known) { return known.get() == handle; });
  return erased == 1 ? ncclSuccess : failed(comm, ncclInvalidArgument, "there is no such handle");
}
}
