#include "collective/group.h"

#include <cstdlib>
#include <new>

namespace hvdtune {

void Scratch::Free::operator()(uint8_t* memory) const { std::free(memory); }

uint8_t* Scratch::take(size_t index, size_t bytes) {
  if (areas_.size() <= index) areas_.resize(index + 1);
  Area& area = areas_[index];
  if (area.bytes < bytes) {
    const size_t rounded = (bytes + 4095) / 4096 * 4096;
    area.memory.reset(static_cast<uint8_t*>(std::aligned_alloc(4096, rounded)));
    if (!area.memory) throw std::bad_alloc();
    area.bytes = rounded;
  }
  return area.memory.get();
}

Group::Group(Mesh& mesh, const StopSignal& stop, Observer& observer, int spins)
    : mesh_(mesh), stop_(stop), observer_(observer), spins_(spins) {
  for (const std::vector<int>& host : mesh.topology.hosts) {
    canonical_ranks_.insert(canonical_ranks_.end(), host.begin(), host.end());
    host_sizes_.push_back(static_cast<int>(host.size()));
    homogeneous_ = homogeneous_ && host.size() == mesh.topology.hosts[0].size();
  }
}

void Group::post() { mesh_.arena->post(++meetings_); }

void Group::await_local() {
  observe(Phase::kWait, 0,
          [&] { mesh_.arena->await_all(meetings_, Deadline::never(), stop_, spins_); });
}

void Group::exchange(std::span<Transfer> transfers) {
  size_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.send_bytes + transfer.recv_bytes;
  observe(Phase::kExchange, bytes,
          [&] { hvdtune::exchange(transfers, Deadline::never(), stop_, spins_); });
}

}  // namespace hvdtune
