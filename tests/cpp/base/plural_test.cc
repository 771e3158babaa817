#include "base/plural.h"

#include "check.h"

using namespace hvdtune;

TEST(a_noun_is_singular_after_one_only) {
  CHECK_EQ(counted(1, "rank"), "1 rank");
  CHECK_EQ(counted(size_t{1}, "rank"), "1 rank");
  CHECK_EQ(counted(0, "rank"), "0 ranks");
  CHECK_EQ(counted(2, "rank"), "2 ranks");
  CHECK_EQ(counted(-1, "rank"), "-1 ranks");
}
