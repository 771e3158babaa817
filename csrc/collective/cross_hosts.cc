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
      exchange_(group, queue, same_place_on_each_host(group.topology()),
                accumulator_bytes(reduction), size_of(reduction.dtype), largest, places, area),
      partials_(group, area + 1, places, largest * accumulator_bytes(reduction)),
      results_(places) {}

uint8_t* CrossHosts::partial(size_t chunk) {
  exchange_.await_sent(chunk);
  return partials_.at(chunk);
}

void CrossHosts::combine(size_t chunk, size_t count, uint8_t* out) {
  const size_t element = size_of(reduction_.dtype);
  const ElementRange own = exchange_.own(count);
  const std::vector<uint8_t*>& partials = exchange_.await_parts(chunk, partials_.at(chunk), count);
  TransferQueue::Pending& results = results_[chunk % results_.size()];
  queue_.await_sent(results);
  group_.observe(Phase::kReduce, own.count * element, [&] {
    reduce_partials(reduction_, partials, out + own.begin * element, own.count);
  });
  exchange_.send_result(out, count, results);
}

}  // namespace hvdtune
