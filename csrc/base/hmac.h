// SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104), for handshakes and frame authentication.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hvdtune {

using Bytes = std::span<const uint8_t>;
using Digest = std::array<uint8_t, 32>;
using Key = std::array<uint8_t, 32>;  // one per job, made by the launcher

class Sha256 {
 public:
  Sha256();
  void update(Bytes data);
  Digest finish();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> block_;
  size_t filled_ = 0;
  uint64_t total_bytes_ = 0;
};

// Keyed once, used for many messages: the two key blocks are hashed in the constructor only.
class Hmac {
 public:
  explicit Hmac(const Key& key);
  Digest sign(Bytes first, Bytes second = {}) const;

 private:
  Sha256 inner_;
  Sha256 outer_;
};

Digest sha256(Bytes data);
Digest hmac_sha256(const Key& key, Bytes data);
// Takes the same time wherever the first difference is.
bool digests_equal(Bytes a, Bytes b);
// From the kernel's generator; throws Error(kInternal) if it fails.
void random_bytes(std::span<uint8_t> out);

}  // namespace hvdtune
