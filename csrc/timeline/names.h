// Numbers for names, the same for the life of a recorder.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hvdtune {

// Thread rule: every member may be called from any thread.
class Names {
 public:
  Names() { ids_.emplace(entries_.emplace_back().name, 0); }

  // 0 for "". Takes a lock: ask once, keep the number. `detail` says what the name stands for; the
  // first one given stands.
  uint32_t intern(std::string_view name, std::string_view detail = {}) {
    const std::lock_guard lock(mutex_);
    const auto found = ids_.find(name);
    if (found != ids_.end()) {
      NameEntry& row = entries_[found->second];
      if (row.detail.empty()) row.detail = detail;
      return found->second;
    }
    const auto id = static_cast<uint32_t>(entries_.size());
    // The map's keys point into the deque, whose strings never move.
    NameEntry& row = entries_.emplace_back(std::string(name), std::string(detail));
    ids_.emplace(row.name, id);
    return id;
  }
  // "" for numbers that were never given.
  std::string name_of(uint32_t id) const {
    const std::lock_guard lock(mutex_);
    return id < entries_.size() ? entries_[id].name : std::string();
  }
  std::string detail_of(uint32_t id) const {
    const std::lock_guard lock(mutex_);
    return id < entries_.size() ? entries_[id].detail : std::string();
  }

 private:
  struct NameEntry {
    NameEntry() = default;
    NameEntry(std::string name, std::string detail)
        : name(std::move(name)), detail(std::move(detail)) {}
    std::string name;
    std::string detail;
  };
  mutable std::mutex mutex_;
  std::deque<NameEntry> entries_;
  std::unordered_map<std::string_view, uint32_t> ids_;
};

}  // namespace hvdtune
