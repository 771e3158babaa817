#include "nccl/library.h"

#include <utility>
#include <vector>

#include "base/status.h"

namespace hvdtune {
namespace {

// The first with communicators that do not block, which alone can be given up safely.
constexpr int kOldest = 21400;

std::string text_of(int version) {
  if (version < 10000) {  // before 2.9, as in 2708
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 100) + "." +
           std::to_string(version % 100);
  }
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace

NcclLibrary::NcclLibrary(DynamicLibrary library) : library_(std::move(library)) {
  const auto version = reinterpret_cast<NcclResult (*)(int*)>(library_.function("ncclGetVersion"));
  if (version == nullptr || version(&version_) != kNcclSuccess) {
    throw Error(ErrorCode::kUsage, library_.path() + " does not report its NCCL version");
  }
  if (version_ < kOldest) {
    throw Error(ErrorCode::kUsage, library_.path() + " is NCCL " + text_of(version_) +
                                       "; hvdtune needs NCCL " + text_of(kOldest) + " or later");
  }
#define HVDTUNE_FIND(name, symbol, parameters)                                             \
  name = reinterpret_cast<NcclResult(*) parameters>(library_.function(symbol));            \
  if (name == nullptr) {                                                                   \
    throw Error(ErrorCode::kUsage,                                                         \
                library_.path() + " is NCCL " + text_of(version_) + " but lacks " symbol); \
  }
  HVDTUNE_NCCL_FUNCTIONS(HVDTUNE_FIND)
#undef HVDTUNE_FIND
  error_text_ =
      reinterpret_cast<const char* (*)(NcclResult)>(library_.function("ncclGetErrorString"));
  last_error_ = reinterpret_cast<const char* (*)(NcclComm)>(library_.function("ncclGetLastError"));
}

std::shared_ptr<NcclLibrary> NcclLibrary::open(const std::string& path) {
  const std::vector<std::string> names{"libnccl.so.2", "librccl.so.1", "librccl.so"};
  return std::shared_ptr<NcclLibrary>(
      new NcclLibrary(DynamicLibrary::find("NCCL", "ncclGetUniqueId", path, names)));
}

std::string NcclLibrary::version() const { return text_of(version_); }

NcclConfig NcclLibrary::config() const {
  NcclConfig config{};
  config.size = sizeof config;
  config.version = 21800;
  if (version_ < 21800) {
    config.size = version_ < 21700 ? 24 : 40;
    config.version = version_ < 21700 ? 21400 : 21700;
  }
  return config;
}

std::string NcclLibrary::describe(NcclResult result) const {
  std::string text = "NCCL " + version() + ": ";
  const char* name = error_text_ == nullptr ? nullptr : error_text_(result);
  text += name == nullptr ? "error " + std::to_string(result) : std::string(name);
  const char* last = last_error_ == nullptr ? nullptr : last_error_(nullptr);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return text;
}

}  // namespace hvdtune
