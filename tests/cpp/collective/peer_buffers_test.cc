#include "collective/peer_buffers.h"

#include <cstring>
#include <vector>

#include "base/status.h"
#include "check.h"
#include "child.h"

using namespace hvdtune;

// The peer's segments go with its process, before its connections tell that it has ended.
TEST(a_peer_whose_process_ended_before_its_memory_was_mapped_is_named_as_lost) {
  const auto pool = Pool::create();
  const auto memory = pool->allocate(4096);
  Payload payload;
  payload.add(memory->data(), memory->data(), memory->bytes());
  std::vector<uint8_t> slot(4096);
  CHECK(publish_buffers(payload, *pool, false, slot.data(), slot.size()));

  Child child;
  // What is shown of a segment begins with its address, then comes the offer.
  uint8_t* shown = slot.data() + kPeerBufferHeaderBytes + sizeof(uint64_t);
  SegmentOffer offer;
  std::memcpy(&offer, shown, sizeof offer);
  offer.pid = child.pid();
  std::memcpy(shown, &offer, sizeof offer);
  ProcessCard card;
  card.pid = child.pid();
  card.pid_namespace = own_pid_namespace();
  PeerMemory peer(card, 6);
  child.end_without_asking();
  try {
    const PeerBuffers buffers(slot.data(), nullptr, payload.bytes(), peer);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), 6);
  }
}
