#include "mpi/communicator.h"

#include <sched.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/status.h"

namespace hvdtune {
namespace {

// After this long without an end, a wait sleeps between its questions.
constexpr uint64_t kEagerNs = 20'000'000;
constexpr auto kNap = std::chrono::microseconds(50);
constexpr int kTextBytes = 256;

// What `use` returns.
template <typename Memory, typename Use>
auto keep_if_abandoned(MpiLibrary& library, std::shared_ptr<Memory> memory, Use use) {
  try {
    return use(*memory);
  } catch (...) {
    library.keep(memory);
    throw;
  }
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiLibrary> library, hvdtune_mpi_comm* comm)
    : library_(std::move(library)), comm_(comm) {}

std::unique_ptr<MpiCommunicator> MpiCommunicator::duplicate(std::shared_ptr<MpiLibrary> library,
                                                            const void* handle,
                                                            const MpiPatience& patience) {
  hvdtune_mpi_comm* comm = nullptr;
  hvdtune_mpi_request* request = nullptr;
  library->check(library->functions().duplicate(handle, &comm, &request), "MPI_Comm_idup");
  std::unique_ptr<MpiCommunicator> made(new MpiCommunicator(std::move(library), comm));
  try {
    made->await(request, "MPI_Comm_idup", patience);
  } catch (const Error& error) {
    made->abandoned_ = true;
    if (error.code() != ErrorCode::kTimeout) throw;
    throw Error(ErrorCode::kRendezvous,
                "start-up timed out: not every rank of the communicator has called hvd.init()");
  }
  made->learn_place();
  return made;
}

std::unique_ptr<MpiCommunicator> MpiCommunicator::of_world(std::shared_ptr<MpiLibrary> library,
                                                           std::span<const int> ranks) {
  hvdtune_mpi_comm* comm = nullptr;
  library->check(
      library->functions().subset(nullptr, ranks.data(), static_cast<int>(ranks.size()), 0, &comm),
      "MPI_Comm_create_group");
  std::unique_ptr<MpiCommunicator> made(new MpiCommunicator(std::move(library), comm));
  made->learn_place();
  return made;
}

std::unique_ptr<MpiCommunicator> MpiCommunicator::subset(std::span<const int> ranks,
                                                         int tag) const {
  hvdtune_mpi_comm* comm = nullptr;
  library_->check(
      library_->functions().subset(comm_, ranks.data(), static_cast<int>(ranks.size()), tag, &comm),
      "MPI_Comm_create_group");
  std::unique_ptr<MpiCommunicator> made(new MpiCommunicator(library_, comm));
  made->learn_place();
  return made;
}

MpiCommunicator::~MpiCommunicator() {
  // The library that initialised MPI may have finalised it.
  if (abandoned_) return;
  int initialized = 0;
  int finalized = 0;
  library_->functions().state(&initialized, &finalized);
  if (!finalized) library_->functions().release(comm_);
}

void MpiCommunicator::learn_place() {
  library_->check(library_->functions().place(comm_, &rank_, &size_), "MPI_Comm_rank");
}

int MpiCommunicator::node() const {
  int lowest = 0;
  library_->check(library_->functions().node(comm_, &lowest), "MPI_Comm_split_type");
  return lowest;
}

std::string MpiCommunicator::broadcast(const std::string& bytes, int root,
                                       const MpiPatience& patience) {
  struct Memory {
    int32_t length = 0;
    std::string bytes;
  };
  return keep_if_abandoned(*library_, std::make_shared<Memory>(), [&](Memory& memory) {
    if (rank_ == root) memory = {static_cast<int32_t>(bytes.size()), bytes};
    const auto share = [&](void* data, int count) {
      run("MPI_Ibcast", patience, [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
        return mpi.bcast(comm, data, count, root, request);
      });
    };
    share(&memory.length, sizeof memory.length);
    memory.bytes.resize(static_cast<size_t>(memory.length));
    share(memory.bytes.data(), memory.length);
    return memory.bytes;
  });
}

std::vector<std::string> MpiCommunicator::gather(const std::string& text,
                                                 const MpiPatience& patience) {
  struct Memory {
    std::string own;
    std::string all;
  };
  const auto ranks = static_cast<size_t>(size_);
  std::vector<int> counts(ranks, kTextBytes);
  std::vector<int> offsets(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) offsets[rank] = static_cast<int>(rank) * kTextBytes;
  return keep_if_abandoned(*library_, std::make_shared<Memory>(), [&](Memory& memory) {
    memory.own = text;
    memory.own.resize(kTextBytes);
    memory.all.resize(ranks * kTextBytes);
    run("MPI_Iallgatherv", patience, [&](const auto& mpi, hvdtune_mpi_comm* comm, auto* request) {
      return mpi.allgatherv(comm, memory.own.data(), kTextBytes, memory.all.data(), counts.data(),
                            offsets.data(), request);
    });
    std::vector<std::string> texts;
    for (const int offset : offsets) texts.emplace_back(memory.all.c_str() + offset);
    return texts;
  });
}

void MpiCommunicator::await(hvdtune_mpi_request* request, const char* what,
                            const MpiPatience& patience) {
  const uint64_t begin = now_ns();
  abandoned_ = true;  // unless it ends
  for (;;) {
    int done = 0;
    library_->check(library_->functions().test(request, &done), what);
    if (done) break;
    if (patience.stop != nullptr && patience.stop->raised()) {
      throw Error(ErrorCode::kShutdown, std::string("stopped in ") + what);
    }
    if (patience.deadline.passed()) {
      throw Error(ErrorCode::kTimeout, std::string(what) + " did not finish in time");
    }
    if (now_ns() - begin < kEagerNs) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  abandoned_ = false;
}

}  // namespace hvdtune
