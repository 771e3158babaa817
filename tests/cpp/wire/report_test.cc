#include "wire/report.h"

#include "check.h"
#include "wire/samples.h"

using namespace hvdtune;
using namespace hvdtune::testing;

TEST(what_ranks_tell_about_themselves_survives_the_wire) {
  CHECK(decode_report(encode(sample_report())) == sample_report());
  CHECK(decode_report(encode(RankReport{})) == RankReport{});
  const ProcessIdentity who{4711, 4026531836, 815};
  CHECK(decode_identity(encode(who)) == who);
  CHECK(decode_pulse(encode(Pulse{1, 2, 3, true, 4})) == (Pulse{1, 2, 3, true, 4}));
  CHECK(decode_probe_request(encode(ProbeRequest{5, who})) == (ProbeRequest{5, who}));
  CHECK(decode_probe_result(encode(ProbeResult{5, ProcessState::kGone})) ==
        (ProbeResult{5, ProcessState::kGone}));
}

TEST(a_sight_that_does_not_exist_is_refused) {
  std::vector<uint8_t> bytes = encode(ProbeResult{5, ProcessState::kGone});
  bytes.back() = kProcessStateCount;
  CHECK_THROWS(ErrorCode::kInternal, decode_probe_result(bytes));
}
