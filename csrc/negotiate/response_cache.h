// Remembers past responses, so that a repeated tensor travels as a number.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "negotiate/pending_requests.h"
#include "wire/message.h"

namespace hvdtune {

// One rank's side. The coordinator chooses numbers and evictions; this only follows, so all ranks
// hold the same entries after the same cycle. Numbers are never used twice. Ranks outside a
// process set remember its entries, too: they may have to pass its numbers on.
class ResponseCache {
 public:
  // The number under which exactly this request was answered before.
  std::optional<uint32_t> find(const Request& own) const;
  // `own` is what this rank announced for `response`; null if it did not.
  void remember(const Request* own, const Response& response);
  // Ranks that have not applied this cycle yet may still announce the number.
  void forget(uint32_t id, uint64_t cycle);
  // Every rank from here down has applied `cycle`.
  void drop_forgotten(uint64_t cycle);
  // The request a number stands, or stood until lately, for; null when unknown.
  const Request* request_of(uint32_t id) const;
  // Fills in a compact response. Throws Error(kInternal) for an unknown number.
  void complete(Response& response) const;
  size_t size() const { return by_id_.size(); }

 private:
  struct CachedResponse {
    std::optional<Request> own;  // if it differs from the response's
    bool announced = false;
    Response response;
    uint64_t forgotten_in = 0;

    const Request& mine() const { return own ? *own : response.request; }
  };
  std::unordered_map<uint32_t, CachedResponse> by_id_;
  std::unordered_map<uint32_t, CachedResponse> forgotten_;
  std::unordered_map<OperationKey, uint32_t, OperationKeyHash> by_key_;
};

}  // namespace hvdtune
