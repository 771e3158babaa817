#include "base/stream_copy.h"

#include <numeric>
#include <vector>

#include "check.h"

using namespace hvdtune;

TEST(every_byte_is_copied_and_no_other_is_touched) {
  std::vector<uint8_t> from(1000);
  std::iota(from.begin(), from.end(), uint8_t{1});
  for (const size_t to_offset : {0, 1, 17, 63, 64}) {
    for (const size_t from_offset : {0, 3}) {
      for (const size_t bytes : {0, 1, 63, 64, 65, 128, 500}) {
        std::vector<uint8_t> to(1000, 0);
        stream_copy(to.data() + to_offset, from.data() + from_offset, bytes);
        std::vector<uint8_t> expected(1000, 0);
        for (size_t i = 0; i < bytes; ++i) expected[to_offset + i] = from[from_offset + i];
        CHECK(to == expected);
      }
    }
  }
}
