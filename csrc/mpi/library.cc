#include "mpi/library.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "base/status.h"

namespace hvdtune {

std::shared_ptr<MpiLibrary> MpiLibrary::open(const std::string& path) {
  // Never closed: an MPI library does not survive being unloaded.
  void* plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    throw Error(ErrorCode::kUsage, std::string("cannot load the MPI plugin: ") + dlerror());
  }
  const auto entry =
      reinterpret_cast<hvdtune_mpi_plugin_function>(dlsym(plugin, "hvdtune_mpi_plugin"));
  if (entry == nullptr) {
    throw Error(ErrorCode::kUsage, path + " is not an MPI plugin of hvdtune");
  }
  return std::make_shared<MpiLibrary>(*entry());
}

MpiLibrary::MpiLibrary(const hvdtune_mpi_functions& functions) : functions_(functions) {
  if (functions.version != HVDTUNE_MPI_PLUGIN_VERSION) {
    throw Error(ErrorCode::kUsage,
                "the MPI plugin has version " + std::to_string(functions.version) +
                    ", but this hvdtune needs " + std::to_string(HVDTUNE_MPI_PLUGIN_VERSION) +
                    "; run `hvdtune build mpi` again");
  }
}

std::string MpiLibrary::version() const {
  const std::string text = functions_.library_version();
  return text.substr(0, text.find('\n'));
}

bool MpiLibrary::initialized() const {
  int initialized = 0;
  int finalized = 0;
  check(functions_.state(&initialized, &finalized), "MPI_Initialized");
  return initialized != 0;
}

bool MpiLibrary::finalized() const {
  int initialized = 0;
  int finalized = 0;
  check(functions_.state(&initialized, &finalized), "MPI_Finalized");
  return finalized != 0;
}

void MpiLibrary::initialize() { check(functions_.initialize(), "MPI_Init_thread"); }

void MpiLibrary::finalize() { check(functions_.finalize(), "MPI_Finalize"); }

MpiThreads MpiLibrary::threads() const {
  int level = 0;
  check(functions_.thread_level(&level), "MPI_Query_thread");
  return static_cast<MpiThreads>(level);
}

void MpiLibrary::keep(std::shared_ptr<void> memory) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
}

void MpiLibrary::check(int error, const char* what) const {
  if (error == 0) return;
  std::array<char, 512> text{};
  functions_.error_text(error, text.data(), static_cast<int>(text.size()));
  throw Error(ErrorCode::kInternal, std::string(what) + ": " + text.data());
}

}  // namespace hvdtune
