#include "transport/shm/segment.h"

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "check.h"

using namespace hvdtune;

namespace {

std::string message_of(const SegmentOffer& offer) {
  try {
    Segment::open(offer, 4);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kInternal);
    CHECK_EQ(error.rank(), 4);
    return error.what();
  }
  return "";
}

}  // namespace

TEST(both_mappings_show_the_same_memory) {
  const Segment made = Segment::create(1 << 20);
  const Segment opened = Segment::open(made.offer(), 4);
  CHECK(made.data() != opened.data());
  made.data()[Segment::kReserved] = 42;
  CHECK_EQ(int{opened.data()[Segment::kReserved]}, 42);
  CHECK_EQ(opened.bytes(), made.bytes());
}

TEST(a_closed_offer_keeps_the_memory_but_lets_nobody_in) {
  Segment made = Segment::create(4096);
  const SegmentOffer offer = made.offer();
  made.close_fd();
  made.data()[Segment::kReserved] = 1;
  CHECK(message_of(offer).find("HVDTUNE_TRANSPORT=tcp") != std::string::npos);
}

TEST(a_descriptor_that_is_no_segment_is_not_opened) {
  const UniqueFd other(open("/dev/null", O_RDWR | O_CLOEXEC));
  SegmentOffer offer = Segment::create(4096).offer();
  offer.fd = other.get();
  CHECK(message_of(offer).find("is not a segment") != std::string::npos);
}

TEST(a_segment_of_another_job_is_refused) {
  const Segment made = Segment::create(4096);
  SegmentOffer offer = made.offer();
  offer.cookie[0] ^= 1;
  CHECK(message_of(offer).find("belongs to another job") != std::string::npos);
}

TEST(a_segment_of_another_size_is_refused) {
  const Segment made = Segment::create(4096);
  SegmentOffer offer = made.offer();
  offer.bytes += 4096;
  CHECK(message_of(offer).find("has a different size") != std::string::npos);
}
