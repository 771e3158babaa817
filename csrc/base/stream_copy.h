// Copies that leave the processor's cache alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvdtune {

// Whether stream_copy() differs from memcpy() on this architecture.
#if defined(__x86_64__)
inline constexpr bool kHasStreamCopy = true;
#else
inline constexpr bool kHasStreamCopy = false;
#endif

// As memcpy(), by stores that go to memory past the caches. Nobody's copy of a line has to be
// fetched first, which takes long where that is in the cache of a processor far away. What another
// thread reads after the usual means of telling it is what was written here.
void stream_copy(uint8_t* to, const uint8_t* from, size_t bytes);

}  // namespace hvdtune
