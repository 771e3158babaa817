// A library that is found when it is needed: nothing is linked against it.
#pragma once

#include <span>
#include <string>

namespace hvdtune {

// Never unloaded: neither a driver nor a library with threads of its own survives that.
class DynamicLibrary {
 public:
  // Prefers the copy that the process has already, known by its function `probe`: two copies of one
  // library do not know of each other. Otherwise loads `path`, or if that is empty the first of
  // `names` that there is. Throws Error(kUsage) with the loader's reason, `what` naming the
  // library, if it cannot.
  static DynamicLibrary find(const std::string& what, const char* probe, const std::string& path,
                             std::span<const std::string> names);

  // Null if it has none of that name.
  void* function(const char* name) const;
  // The file, as the loader knows it.
  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}

  void* handle_;
  std::string path_;
};

}  // namespace hvdtune
