#include "base/copy.h"

#include <vector>

#include "check.h"

using namespace hvdtune;

TEST(every_copy_moves_its_bytes_and_no_others_wherever_they_begin) {
  constexpr size_t kRoom = 400;
  std::vector<uint8_t> source(kRoom);
  for (size_t i = 0; i < kRoom; ++i) source[i] = static_cast<uint8_t>(i % 250 + 1);
  for (size_t to = 0; to < 70; ++to) {
    for (const size_t from : {size_t{0}, size_t{1}, size_t{63}}) {
      for (const size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 129, 200, 300}) {
        for (const size_t whole : {bytes, kStreamedBytes}) {
          std::vector<uint8_t> target(kRoom, 0);
          copy_part(target.data() + to, source.data() + from, bytes, whole);
          for (size_t i = 0; i < kRoom; ++i) {
            const bool is_copied = i >= to && i < to + bytes;
            CHECK_EQ(int{target[i]}, is_copied ? int{source[i - to + from]} : 0);
          }
        }
      }
    }
  }
}

TEST(a_copy_of_nothing_may_be_nowhere) {
  copy_part(nullptr, nullptr, 0, 0);
  copy_part(nullptr, nullptr, 0, kStreamedBytes);
}
