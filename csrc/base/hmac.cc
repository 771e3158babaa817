#include "base/hmac.h"

#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace hvdtune {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_be32(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

void store_be32(uint32_t value, uint8_t* p) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19},
      block_{} {}

void Sha256::compress(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = load_be32(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::update(Bytes data) {
  total_bytes_ += data.size();
  while (!data.empty()) {
    if (filled_ == 0 && data.size() >= 64) {
      compress(data.data());
      data = data.subspan(64);
      continue;
    }
    const size_t take = std::min(data.size(), 64 - filled_);
    std::memcpy(block_.data() + filled_, data.data(), take);
    filled_ += take;
    data = data.subspan(take);
    if (filled_ == 64) {
      compress(block_.data());
      filled_ = 0;
    }
  }
}

Digest Sha256::finish() {
  const uint64_t bits = total_bytes_ * 8;
  const std::array<uint8_t, 64> padding = {0x80};
  const size_t pad = filled_ < 56 ? 56 - filled_ : 120 - filled_;
  update(Bytes(padding).first(pad));
  std::array<uint8_t, 8> length;
  store_be32(static_cast<uint32_t>(bits >> 32), length.data());
  store_be32(static_cast<uint32_t>(bits), length.data() + 4);
  update(length);
  Digest digest;
  for (size_t i = 0; i < 8; ++i) store_be32(state_[i], digest.data() + 4 * i);
  return digest;
}

Hmac::Hmac(const Key& key) {
  std::array<uint8_t, 64> pad;
  const auto start = [&](Sha256& hash, uint8_t mask) {
    pad.fill(mask);
    for (size_t i = 0; i < key.size(); ++i) pad[i] ^= key[i];
    hash.update(pad);
  };
  start(inner_, 0x36);
  start(outer_, 0x5c);
}

Digest Hmac::sign(Bytes first, Bytes second) const {
  Sha256 inner = inner_;
  inner.update(first);
  inner.update(second);
  Sha256 outer = outer_;
  outer.update(inner.finish());
  return outer.finish();
}

Digest sha256(Bytes data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

Digest hmac_sha256(const Key& key, Bytes data) { return Hmac(key).sign(data); }

bool digests_equal(Bytes a, Bytes b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

void random_bytes(std::span<uint8_t> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno != EINTR) throw system_failure("getrandom", errno);
    if (got > 0) out = out.subspan(static_cast<size_t>(got));
  }
}

}  // namespace hvdtune
