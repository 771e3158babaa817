// An MPI library, loaded through its plugin. The core links none.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mpi/plugin.h"

namespace hvdtune {

enum class MpiThreads : int { kSingle, kFunneled, kSerialized, kMultiple };

// Thread rule: version(), threads() and keep() may be called from any thread, the others as MPI's
// own.
class MpiLibrary {
 public:
  // Loads the plugin at `path`, and with it the MPI it was compiled against unless the process has
  // one of that name already. Throws Error(kUsage) saying what is wrong with it.
  static std::shared_ptr<MpiLibrary> open(const std::string& path);
  // The functions must outlive the library.
  explicit MpiLibrary(const hvdtune_mpi_functions& functions);

  const hvdtune_mpi_functions& functions() const { return functions_; }

  // What MPI says of itself, in one line.
  std::string version() const;
  bool initialized() const;
  bool finalized() const;
  // Asks for any number of threads; what was granted is in threads().
  void initialize();
  void finalize();
  MpiThreads threads() const;

  // Keeps memory as long as the library: MPI may still write to that of an operation which was
  // given up.
  void keep(std::shared_ptr<void> memory);

  // Throws Error(kInternal) with MPI's text if `error` is one.
  void check(int error, const char* what) const;

 private:
  const hvdtune_mpi_functions& functions_;
  std::mutex mutex_;  // guards kept_
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace hvdtune
