// N ranks as N threads on bare meshes: collectives without the runtime above them.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "collective/group.h"
#include "transport/mesh.h"
#include "transport/rendezvous.h"

namespace hvdtune::testing {

struct Unobserved final : Observer {
  void phase(Phase, uint64_t, uint64_t, size_t, int) override {}
};

class World {
 public:
  // Rank r lives on host r % hosts, so that rank order and host order differ.
  World(int size, int hosts, bool shared_memory)
      : listener_("127.0.0.1"), meshes_(static_cast<size_t>(size)) {
    const Key key = {7};
    std::jthread server(
        [&] { channels_ = form_job(listener_, {key, size, 0, std::chrono::seconds(60)}, stop_); });
    on_all([&](int rank) {
      MeshOptions options;
      options.rank = rank;
      options.size = size;
      options.host = "127.0.0." + std::to_string(1 + rank % hosts);
      options.store_port = listener_.port();
      options.key = key;
      options.shared_memory = shared_memory;
      options.start_timeout = std::chrono::seconds(60);
      options.arena_slot_bytes = size_t{1} << 20;  // smaller than the largest chunk
      meshes_[static_cast<size_t>(rank)] = connect_mesh(options, stop_);
    });
    std::vector<int> all(meshes_.size());
    std::iota(all.begin(), all.end(), 0);
    scratch_.resize(meshes_.size());
    for (int rank = 0; rank < size; ++rank) groups_.push_back(make_group(rank, all, observer_));
  }

  int size() const { return static_cast<int>(meshes_.size()); }
  const std::vector<std::vector<int>>& hosts() const { return meshes_[0].topology.hosts; }

  // Of `rank`, one of `ranks`.
  std::unique_ptr<Group> make_group(int rank, const std::vector<int>& ranks, Observer& observer,
                                    int spins = 0) {
    const auto index = static_cast<size_t>(rank);
    return std::make_unique<Group>(meshes_[index], ranks, scratch_[index], stop_, observer, spins);
  }

  Arena& arena(int rank) { return *meshes_[static_cast<size_t>(rank)].arena; }
  Pool& pool(int rank) { return *meshes_[static_cast<size_t>(rank)].pool; }

  void each(const std::function<void(Group&, int)>& body) {
    on_all([&](int rank) { body(*groups_[static_cast<size_t>(rank)], rank); });
  }

 private:
  void on_all(const std::function<void(int)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size(); ++rank) threads.emplace_back(body, rank);
  }

  Listener listener_;
  StopSignal stop_;
  Unobserved observer_;
  std::vector<SecureChannel> channels_;
  std::vector<Mesh> meshes_;
  std::vector<ScratchBuffers> scratch_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace hvdtune::testing
