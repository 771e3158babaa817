// A stream of TensorFlow for CUDA tells CUDA's handle. One of a device that is plugged in by the C
// interface, as the fake GPU is, has that method, too, but it tells nothing. Loaded before
// TensorFlow, this library defines the method, so that they do as those for CUDA.
#include "stream_handles.h"

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace {

// More than TensorFlow's object for a stream has.
constexpr uintptr_t kMostObjectBytes = 2048;

std::mutex mutex;  // guards what follows
std::map<uintptr_t, CUstream> streams;

}  // namespace

void note_stream(const void* place, CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  streams[reinterpret_cast<uintptr_t>(place)] = stream;
}

void forget_stream(CUstream stream) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto at = streams.begin(); at != streams.end();) {
    at = at->second == stream ? streams.erase(at) : std::next(at);
  }
}

// Returns a struct of one pointer, as a pointer is returned.
extern "C" void* platform_specific_handle(const void* stream) __asm__(
    "_ZNK15stream_executor12StreamCommon24platform_specific_handleEv");

extern "C" void* platform_specific_handle(const void* stream) {
  const auto begin = reinterpret_cast<uintptr_t>(stream);
  const std::lock_guard<std::mutex> lock(mutex);
  const auto place = streams.upper_bound(begin);
  if (place == streams.end() || place->first - begin > kMostObjectBytes) return nullptr;
  return place->second;
}
