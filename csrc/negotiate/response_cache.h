// What a rank remembers of past responses, so that a repeated tensor travels as a number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "wire/message.h"

namespace hvdtune {

// One rank's side. The coordinator chooses numbers and evictions; this only follows, so all ranks
// hold the same entries after the same cycle. Numbers are never used twice.
class ResponseCache {
 public:
  // The number under which exactly this request was answered before.
  std::optional<uint32_t> find(const Request& own) const;
  // `own` is what this rank announced for `response`.
  void remember(const Request& own, const Response& response);
  void forget(uint32_t id);
  // Fills in a compact response. Throws Error(kInternal) for an unknown number.
  void complete(Response& response) const;
  size_t size() const { return by_id_.size(); }

 private:
  struct Entry {
    Request own;
    Response response;
  };
  std::unordered_map<uint32_t, Entry> by_id_;
  std::unordered_map<std::string, uint32_t> by_name_;
};

}  // namespace hvdtune
