#include "device/driver.h"

#include <array>

#include "base/status.h"

namespace hvdtune {

CudaDriver::CudaDriver(DynamicLibrary library) : library_(std::move(library)) {
#define HVDTUNE_FIND(name, symbol, parameters)                                                 \
  name = reinterpret_cast<CudaResult(*) parameters>(library_.function(symbol));                \
  if (name == nullptr) {                                                                       \
    throw Error(ErrorCode::kUsage,                                                             \
                library_.path() + " lacks " symbol                                             \
                                  "; hvdtune needs CUDA 11.4 or later, so update the driver"); \
  }
  HVDTUNE_CUDA_FUNCTIONS(HVDTUNE_FIND)
#undef HVDTUNE_FIND
}

std::shared_ptr<CudaDriver> CudaDriver::open(const std::string& path) {
  constexpr const char* kProbe = "cuDeviceGetCount";
  return std::shared_ptr<CudaDriver>(new CudaDriver(DynamicLibrary::find(
      "CUDA's driver", kProbe, path, std::array{std::string("libcuda.so.1")})));
}

void CudaDriver::initialise() const {
  const CudaResult result = init(0);
  if (result != kCudaSuccess) {
    throw Error(ErrorCode::kUsage,
                "CUDA's driver (" + path() + ") cannot be initialised: " + describe(result));
  }
}

std::string CudaDriver::describe(CudaResult result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  error_name(result, &name);
  error_text(result, &text);
  if (name == nullptr) return "CUDA error " + std::to_string(result);
  return text == nullptr ? std::string(name) : std::string(name) + " (" + text + ")";
}

void CudaDriver::check(CudaResult result, const char* what) const {
  if (result == kCudaSuccess) return;
  throw Error(ErrorCode::kInternal, std::string(what) + ": " + describe(result));
}

std::string CudaDriver::version() const {
  int version = 0;
  check(driver_version(&version), "cuDriverGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int CudaDriver::count() const {
  if (init(0) == kCudaNoDevice) return 0;
  initialise();
  int count = 0;
  check(device_count(&count), "cuDeviceGetCount");
  return count;
}

std::string CudaDriver::name_of(int number) const {
  initialise();
  CudaDevice found = 0;
  check(device(&found, number), "cuDeviceGet");
  std::array<char, 128> name{};
  check(device_name(name.data(), static_cast<int>(name.size()) - 1, found), "cuDeviceGetName");
  return name.data();
}

}  // namespace hvdtune
