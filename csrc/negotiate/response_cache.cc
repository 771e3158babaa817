#include "negotiate/response_cache.h"

#include <utility>

#include "base/status.h"

namespace hvdtune {

std::optional<uint32_t> ResponseCache::find(const Request& own) const {
  const auto id = by_key_.find(key_of(own));
  if (id == by_key_.end()) return std::nullopt;
  const CachedResponse& entry = by_id_.at(id->second);
  if (!entry.announced || !(entry.mine() == own)) return std::nullopt;
  return id->second;
}

void ResponseCache::remember(const Request* own, const Response& response) {
  CachedResponse entry;
  entry.announced = own != nullptr;
  entry.response = response;
  if (own != nullptr && !(*own == response.request)) entry.own = *own;
  by_key_.insert_or_assign(key_of(response.request), response.cache_id);
  by_id_.insert_or_assign(response.cache_id, std::move(entry));
}

void ResponseCache::forget(uint32_t id, uint64_t cycle) {
  auto node = by_id_.extract(id);
  if (node.empty()) return;
  const auto key = by_key_.find(key_of(node.mapped().response.request));
  if (key != by_key_.end() && key->second == id) by_key_.erase(key);
  node.mapped().forgotten_in = cycle;
  forgotten_.insert(std::move(node));
}

void ResponseCache::drop_forgotten(uint64_t cycle) {
  if (forgotten_.empty()) return;
  std::erase_if(forgotten_, [&](const auto& item) { return item.second.forgotten_in <= cycle; });
}

const Request* ResponseCache::request_of(uint32_t id) const {
  const auto entry = by_id_.find(id);
  if (entry != by_id_.end()) return &entry->second.response.request;
  const auto old = forgotten_.find(id);
  return old != forgotten_.end() ? &old->second.response.request : nullptr;
}

void ResponseCache::complete(Response& response) const {
  const auto entry = by_id_.find(response.cache_id);
  if (entry == by_id_.end()) {
    throw Error(ErrorCode::kInternal, "a response refers to cache entry " +
                                          std::to_string(response.cache_id) +
                                          ", which is missing on this rank");
  }
  response.request = entry->second.response.request;
  response.first_dims = entry->second.response.first_dims;
}

}  // namespace hvdtune
