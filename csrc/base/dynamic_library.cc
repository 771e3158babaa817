#include "base/dynamic_library.h"

#include <dlfcn.h>

#include <utility>
#include <vector>

#include "base/status.h"

namespace hvdtune {
namespace {

std::string path_of(void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace

DynamicLibrary DynamicLibrary::find(const std::string& what, const char* probe,
                                    const std::string& path, std::span<const std::string> names) {
  if (void* known = dlsym(RTLD_DEFAULT, probe)) return {RTLD_DEFAULT, path_of(known)};
  std::vector<std::string> all(names.begin(), names.end());
  if (!path.empty()) all.insert(all.begin(), path);
  std::string reasons;
  for (const int only_loaded : {RTLD_NOLOAD, 0}) {
    // A path that somebody has chosen is not replaced by what happens to be there.
    if (only_loaded == 0 && !path.empty()) all = {path};
    for (const std::string& name : all) {
      void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | only_loaded);
      if (handle == nullptr) {
        const char* reason = dlerror();
        if (only_loaded == 0) {
          reasons += (reasons.empty() ? "" : "; ") + std::string(reason ? reason : name.c_str());
        }
        continue;
      }
      void* function = dlsym(handle, probe);
      if (function != nullptr) return {handle, path_of(function)};
      throw Error(ErrorCode::kUsage, name + " is not " + what + ": " + probe + " is missing");
    }
  }
  throw Error(ErrorCode::kUsage, what + " cannot be loaded: " + reasons);
}

void* DynamicLibrary::function(const char* name) const { return dlsym(handle_, name); }

}  // namespace hvdtune
