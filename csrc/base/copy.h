// Copies of bytes that may be nowhere, or too many to stay in a cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hvdtune {

// For blocks that may be empty, and so be nowhere.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// Of which there is so much that its beginning has left the cache when the end is written.
constexpr size_t kStreamedBytes = size_t{8} << 20;

// As copy_bytes(), past the cache where the processor can: memory is then not read before it is
// overwritten, which is a third of a copy's traffic.
inline void copy_past_cache(void* to, const void* from, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64;
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
  const size_t misaligned = reinterpret_cast<uintptr_t>(target) % kLine;
  const size_t head = misaligned == 0 ? 0 : kLine - misaligned;
  if (bytes < head + kLine) return copy_bytes(to, from, bytes);
  copy_bytes(target, source, head);
  size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* read = reinterpret_cast<const __m128i*>(source + at);
    auto* write = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(read);
    const __m128i b = _mm_loadu_si128(read + 1);
    const __m128i c = _mm_loadu_si128(read + 2);
    const __m128i d = _mm_loadu_si128(read + 3);
    _mm_stream_si128(write, a);
    _mm_stream_si128(write + 1, b);
    _mm_stream_si128(write + 2, c);
    _mm_stream_si128(write + 3, d);
  }
  copy_bytes(target + at, source + at, bytes - at);
  _mm_sfence();  // such writes are not ordered with others
#else
  copy_bytes(to, from, bytes);
#endif
}

// The one of the two that suits a result of `whole` bytes, of which these are some.
inline void copy_part(void* to, const void* from, size_t bytes, size_t whole) {
  if (whole >= kStreamedBytes) return copy_past_cache(to, from, bytes);
  copy_bytes(to, from, bytes);
}

}  // namespace hvdtune
