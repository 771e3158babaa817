#include "collective/cross_hosts.h"

namespace hvdtune {
namespace {

std::vector<int> same_place_on_each_host(const Topology& topology) {
  std::vector<int> ranks;
  for (const std::vector<int>& host : topology.hosts) {
    ranks.push_back(host[static_cast<size_t>(topology.local_rank)]);
  }
  return ranks;
}

}  // namespace

CrossHosts::CrossHosts(Group& group, TransferQueue& queue, const Reduction& reduction,
                       size_t largest, size_t places, size_t area)
    : group_(group),
      queue_(queue),
      reduction_(reduction),
      ranks_(same_place_on_each_host(group.topology())),
      here_(static_cast<size_t>(group.topology().cross_rank)),
      element_(size_of(reduction.dtype)),
      wide_(accumulator_bytes(reduction)),
      partials_(group, area, places, largest * wide_),
      received_bytes_(whole_lines(part(largest, 0).count * wide_)),
      results_(places) {
  received_ = ChunkBuffers(group, area + 1, places, received_bytes_ * ranks_.size());
}

uint8_t* CrossHosts::partial(size_t chunk) {
  queue_.await_sent(partials_.pending(chunk));
  return partials_.at(chunk);
}

void CrossHosts::send_partials(size_t chunk, size_t count) {
  const size_t own_bytes = part(count, here_).count * wide_;
  for (size_t host = 0; host < ranks_.size(); ++host) {
    if (host == here_) continue;
    const ElementRange theirs = part(count, host);
    queue_.send(ranks_[host], partials_.at(chunk) + theirs.begin * wide_, theirs.count * wide_,
                partials_.pending(chunk));
    queue_.recv(ranks_[host], received_.at(chunk) + host * received_bytes_, own_bytes,
                received_.pending(chunk));
  }
}

void CrossHosts::combine(size_t chunk, size_t count, uint8_t* out) {
  const ElementRange own = part(count, here_);
  std::vector<uint8_t*> partials;
  for (size_t host = 0; host < ranks_.size(); ++host) {
    partials.push_back(host == here_ ? partials_.at(chunk) + own.begin * wide_
                                     : received_.at(chunk) + host * received_bytes_);
  }
  TransferQueue::Pending& results = results_[chunk % results_.size()];
  queue_.await_received(received_.pending(chunk));
  queue_.await_sent(results);
  group_.observe(Phase::kReduce, own.count * element_, [&] {
    reduce_partials(reduction_, partials, out + own.begin * element_, own.count);
  });
  for (size_t host = 0; host < ranks_.size(); ++host) {
    if (host == here_) continue;
    const ElementRange theirs = part(count, host);
    queue_.send(ranks_[host], out + own.begin * element_, own.count * element_, results);
    queue_.recv(ranks_[host], out + theirs.begin * element_, theirs.count * element_, results);
  }
}

}  // namespace hvdtune
