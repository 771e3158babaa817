#include "collective/part_exchange.h"

#include <algorithm>
#include <utility>

namespace hvdtune {

PartExchange::PartExchange(Group& group, TransferQueue& queue, std::vector<int> ranks, size_t width,
                           size_t element, size_t largest, size_t places, size_t area)
    : queue_(queue),
      ranks_(std::move(ranks)),
      self_(static_cast<size_t>(std::ranges::find(ranks_, group.rank()) - ranks_.begin())),
      width_(width),
      element_(element),
      part_bytes_(whole_lines(part(largest, 0).count * width)),
      received_(group, area, places, part_bytes_ * ranks_.size()),
      parts_(ranks_.size()) {}

void PartExchange::send_parts(size_t chunk, const uint8_t* data, size_t count) {
  const size_t own_bytes = own(count).count * width_;
  Pending& pending = received_.pending(chunk);
  for (size_t place = 0; place < ranks_.size(); ++place) {
    if (place == self_) continue;
    const ElementRange theirs = part(count, place);
    queue_.send(ranks_[place], data + theirs.begin * width_, theirs.count * width_, pending);
    queue_.recv(ranks_[place], received(chunk, place), own_bytes, pending);
  }
}

const std::vector<uint8_t*>& PartExchange::await_parts(size_t chunk, uint8_t* data, size_t count) {
  for (size_t place = 0; place < ranks_.size(); ++place) parts_[place] = received(chunk, place);
  parts_[self_] = data + own(count).begin * width_;
  queue_.await_received(received_.pending(chunk));
  return parts_;
}

void PartExchange::send_result(uint8_t* data, size_t count, Pending& pending) {
  const ElementRange mine = own(count);
  for (size_t place = 0; place < ranks_.size(); ++place) {
    if (place == self_) continue;
    const ElementRange theirs = part(count, place);
    queue_.send(ranks_[place], data + mine.begin * element_, mine.count * element_, pending);
    queue_.recv(ranks_[place], data + theirs.begin * element_, theirs.count * element_, pending);
  }
}

}  // namespace hvdtune
