#include "device/graph_owners.h"

#include <mutex>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// Never destroyed: graphs may outlive everything else of a process.
struct Dropped {
  std::mutex mutex;
  std::vector<std::unique_ptr<GraphOwners::Owners>> owners;  // guarded by mutex
};

Dropped& dropped() {
  static auto* const only = new Dropped;
  return *only;
}

void drop(void* owners) {
  std::unique_ptr<GraphOwners::Owners> gone(static_cast<GraphOwners::Owners*>(owners));
  const std::lock_guard lock(dropped().mutex);
  dropped().owners.push_back(std::move(gone));
}

}  // namespace

void GraphOwners::keep(const CudaDriver& driver, CudaStream stream, Owners owners) {
  int status = 0;
  CudaGraph graph = nullptr;
  driver.check(driver.capture_info(stream, &status, nullptr, &graph, nullptr, nullptr),
               "cuStreamGetCaptureInfo");
  if (graph == nullptr)
    throw Error(ErrorCode::kInternal,
                "the capture of the CUDA graph ended before the operation was part of it");
  auto kept = std::make_unique<Owners>(std::move(owners));
  CudaUserObject object = nullptr;
  driver.check(driver.create_user_object(&object, kept.get(), drop, 1, kCudaNoDestructorSync),
               "cuUserObjectCreate");
  static_cast<void>(kept.release());  // the object's now
  driver.check(driver.retain_user_object(graph, object, 1, kCudaMoveToGraph),
               "cuGraphRetainUserObject");
}

void GraphOwners::release_dropped() {
  std::vector<std::unique_ptr<Owners>> gone;
  {
    const std::lock_guard lock(dropped().mutex);
    gone.swap(dropped().owners);
  }
  // Let go of here, without the lock.
}

}  // namespace hvdtune
