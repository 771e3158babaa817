#include "job.h"

#include <mutex>

namespace hvdtune_tensorflow {
namespace {

std::mutex mutex;  // guards what follows; a library of kernels has no object that could own them
const hvdtune_framework_api* functions = nullptr;
std::shared_ptr<hvdtune_job> current;

}  // namespace

const hvdtune_framework_api& api() {
  const std::lock_guard<std::mutex> lock(mutex);
  return *functions;
}

std::shared_ptr<hvdtune_job> job() {
  const std::lock_guard<std::mutex> lock(mutex);
  return current;
}

}  // namespace hvdtune_tensorflow

// Called by hvdtune.tensorflow.library. Takes ownership of `job`, which is NULL for none. Returns
// the version of the interface that the library was compiled for, and does nothing where the table
// is of another one.
extern "C" __attribute__((visibility("default"))) unsigned hvdtune_tensorflow_bind(
    const hvdtune_framework_api* table, hvdtune_job* job) {
  using namespace hvdtune_tensorflow;
  if (table->version != HVDTUNE_FRAMEWORK_API_VERSION) return HVDTUNE_FRAMEWORK_API_VERSION;
  std::shared_ptr<hvdtune_job> former;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    functions = table;
    former = std::move(current);
    current = job == nullptr ? nullptr : std::shared_ptr<hvdtune_job>(job, table->release);
  }
  return HVDTUNE_FRAMEWORK_API_VERSION;
}
