#include "negotiate/response_cache.h"

#include "base/status.h"

namespace hvdtune {

std::optional<uint32_t> ResponseCache::find(const Request& own) const {
  const auto id = by_name_.find(own.name);
  if (id == by_name_.end() || !(by_id_.at(id->second).own == own)) return std::nullopt;
  return id->second;
}

void ResponseCache::remember(const Request& own, const Response& response) {
  by_id_.insert_or_assign(response.cache_id, Entry{own, response});
  by_name_.insert_or_assign(own.name, response.cache_id);
}

void ResponseCache::forget(uint32_t id) {
  const auto entry = by_id_.find(id);
  if (entry == by_id_.end()) return;
  const auto name = by_name_.find(entry->second.own.name);
  if (name != by_name_.end() && name->second == id) by_name_.erase(name);
  by_id_.erase(entry);
}

void ResponseCache::complete(Response& response) const {
  const auto entry = by_id_.find(response.cache_id);
  if (entry == by_id_.end()) {
    throw Error(ErrorCode::kInternal, "response names cache entry " +
                                          std::to_string(response.cache_id) +
                                          ", which this rank does not hold");
  }
  response.request = entry->second.response.request;
  response.first_dims = entry->second.response.first_dims;
}

}  // namespace hvdtune
