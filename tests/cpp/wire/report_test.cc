#include "wire/report.h"

#include "check.h"
#include "wire/samples.h"

using namespace hvdtune;
using namespace hvdtune::testing;

TEST(what_ranks_tell_about_themselves_survives_the_wire) {
  CHECK(decode_report(encode(sample_report())) == sample_report());
  CHECK(decode_report(encode(Report{})) == Report{});
  const Introduction who{4711, 4026531836};
  CHECK(decode_introduction(encode(who)) == who);
  CHECK(decode_pulse(encode(Pulse{1, 2, 3})) == (Pulse{1, 2, 3}));
  CHECK(decode_look(encode(Look{5, who})) == (Look{5, who}));
  CHECK(decode_sighting(encode(Sighting{5, Sight::kGone})) == (Sighting{5, Sight::kGone}));
}

TEST(a_sight_that_does_not_exist_is_refused) {
  std::vector<uint8_t> bytes = encode(Sighting{5, Sight::kGone});
  bytes.back() = kSightCount;
  CHECK_THROWS(ErrorCode::kInternal, decode_sighting(bytes));
}
