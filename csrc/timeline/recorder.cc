#include "timeline/recorder.h"

#include <poll.h>

#include <bit>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "base/stop.h"
#include "timeline/file.h"

namespace hvdtune {
namespace {

constexpr int kDrainEveryMs = 50;

}  // namespace

void Recorder::Lane::allocate(size_t records) {
  // Zeroed, hence touched: a first touch while recording would cost more than the record.
  ring_ = std::make_unique<Record[]>(records);
  size_ = records;
}

Recorder::Recorder() : names_{""} { ids_.emplace(names_.front(), 0); }

Recorder::~Recorder() { stop(); }

Recorder::Lane& Recorder::add_lane() {
  std::lock_guard lock(lanes_mutex_);
  lanes_.push_back(std::make_unique<Lane>(enabled_));
  if (lane_records_ > 0) lanes_.back()->allocate(lane_records_);
  return *lanes_.back();
}

uint32_t Recorder::intern(std::string_view name) {
  std::lock_guard lock(names_mutex_);
  const auto found = ids_.find(name);
  if (found != ids_.end()) return found->second;
  const auto id = static_cast<uint32_t>(names_.size());
  // The map's keys point into the deque, whose strings never move.
  ids_.emplace(names_.emplace_back(name), id);
  return id;
}

std::string Recorder::name_of(uint32_t id) const {
  std::lock_guard lock(names_mutex_);
  return id < names_.size() ? names_[id] : std::string();
}

void Recorder::start(const RecorderOptions& options) {
  std::lock_guard lifecycle(lifecycle_mutex_);
  if (file_ != nullptr) {
    throw Error(ErrorCode::kUsage, "cannot record to " + options.path + ": already recording");
  }
  if (!std::has_single_bit(options.lane_records)) {
    throw Error(ErrorCode::kUsage, "lane_records must be a power of two");
  }
  auto file = std::make_unique<TraceFile>(
      TraceFileOptions{.path = options.path,
                       .max_bytes = options.max_bytes,
                       .metadata = options.metadata.empty() ? "{}" : options.metadata,
                       .recording = now_ns(),
                       .name_of = [this](uint32_t id) { return name_of(id); }});
  {
    std::lock_guard lock(lanes_mutex_);
    lane_records_ = options.lane_records;
    for (const auto& lane : lanes_) {
      if (lane->ring_ == nullptr) lane->allocate(lane_records_);
      // A record() that overlapped the last stop() may have left its record behind.
      lane->tail_.store(lane->head_.load(std::memory_order_acquire), std::memory_order_release);
    }
  }
  dropped_before_ = dropped_by_lanes();
  unwritten_ = 0;
  {
    std::lock_guard lock(error_mutex_);
    write_error_.clear();
  }
  stop_ = std::make_unique<StopSignal>();
  file_ = std::move(file);
  writer_ = std::thread([this] { write_until(*stop_); });
  enabled_.store(true, std::memory_order_release);
}

void Recorder::stop() {
  std::lock_guard lifecycle(lifecycle_mutex_);
  if (file_ == nullptr) return;
  enabled_.store(false, std::memory_order_release);
  stop_->raise();
  writer_.join();
  file_.reset();
  stop_.reset();
}

uint64_t Recorder::dropped() const {
  return dropped_by_lanes() - dropped_before_.load() + unwritten_.load();
}

std::string Recorder::write_error() const {
  std::lock_guard lock(error_mutex_);
  return write_error_;
}

uint64_t Recorder::dropped_by_lanes() const {
  std::lock_guard lock(lanes_mutex_);
  uint64_t total = 0;
  for (const auto& lane : lanes_) total += lane->dropped_.load(std::memory_order_relaxed);
  return total;
}

void Recorder::write_until(const StopSignal& stop) {
  uint64_t noted = 0;
  while (!stop.raised()) {
    pollfd wait{stop.fd(), POLLIN, 0};
    poll(&wait, 1, kDrainEveryMs);
    drain();
    if (const uint64_t now = dropped(); now != noted) {
      file_->note_drops(now);
      noted = now;
    }
  }
  drain();
  file_->finish(dropped());
  note_error();
}

void Recorder::drain() {
  std::vector<Lane*> lanes;
  {
    std::lock_guard lock(lanes_mutex_);
    for (const auto& lane : lanes_) lanes.push_back(lane.get());
  }
  for (Lane* lane : lanes) {
    const uint64_t head = lane->head_.load(std::memory_order_acquire);
    uint64_t tail = lane->tail_.load(std::memory_order_relaxed);
    while (tail != head) {
      const uint64_t at = tail & (lane->size_ - 1);
      const uint64_t whole = std::min(head - tail, lane->size_ - at);
      const uint64_t count = std::min<uint64_t>(whole, TraceFile::kBlockRecords);
      const size_t written = file_->append({lane->ring_.get() + at, count});
      unwritten_ += count - written;
      tail += count;
      lane->tail_.store(tail, std::memory_order_release);
    }
  }
  note_error();
}

void Recorder::note_error() {
  if (file_->error().empty()) return;
  std::lock_guard lock(error_mutex_);
  write_error_ = file_->error();
}

}  // namespace hvdtune
