#include "transport/shm/peer_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/status.h"
#include "check.h"
#include "child.h"

using namespace hvdtune;

namespace {

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

ProcessCard card_of(pid_t pid) {
  ProcessStat stat;
  CHECK_EQ(read_process_stat(pid, stat), 0);
  ProcessCard card;
  card.pid = pid;
  card.started = stat.started;
  return card;
}

}  // namespace

TEST(scattered_memory_is_read_and_written) {
  std::vector<uint32_t> numbers(100'000);
  std::iota(numbers.begin(), numbers.end(), 0U);
  Child child;
  PeerMemory memory(card_of(child.pid()), 3);
  std::vector<PeerMemory::RemoteRange> every_other;
  for (size_t i = 0; i < numbers.size(); i += 2) every_other.push_back({number_of(&numbers[i]), 4});
  std::vector<uint32_t> found(every_other.size());
  auto* bytes = reinterpret_cast<uint8_t*>(found.data());
  memory.read(every_other, bytes);
  for (size_t i = 0; i < found.size(); ++i) CHECK_EQ(found[i], 2 * i);
  for (uint32_t& number : found) number += 1;
  memory.write(bytes, every_other);
  const PeerMemory::RemoteRange all{number_of(numbers.data()), numbers.size() * 4};
  std::vector<uint32_t> after(numbers.size());
  memory.read({&all, 1}, reinterpret_cast<uint8_t*>(after.data()));
  for (size_t i = 0; i < after.size(); ++i) CHECK_EQ(after[i], i % 2 == 0 ? i + 1 : i);
  CHECK_EQ(numbers[0], 0U);
}

TEST(a_cookie_tells_whether_the_right_process_can_be_reached) {
  ProcessCard card;
  card.cookie.fill(9);
  card.address = number_of(card.cookie.data());
  Child child;
  card.pid = child.pid();
  card.started = card_of(child.pid()).started;
  CHECK(PeerMemory(card, 1).reachable());
  ProcessCard other = card;
  other.cookie.fill(8);
  CHECK(!PeerMemory(other, 1).reachable());
  child.end();
  CHECK(!PeerMemory(card, 1).reachable());
}

TEST(a_peer_that_is_gone_is_named) {
  uint64_t value = 4;
  Child child;
  PeerMemory memory(card_of(child.pid()), 7);
  const PeerMemory::RemoteRange range{number_of(&value), sizeof value};
  auto* bytes = reinterpret_cast<uint8_t*>(&value);
  memory.read({&range, 1}, bytes);
  child.end();
  CHECK_THROWS(ErrorCode::kRankLost, memory.write(bytes, {&range, 1}));
  try {
    memory.read({&range, 1}, bytes);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), 7);
  }
}

// What a later process of the same number looks like.
TEST(a_process_that_is_not_the_peer_is_not_written) {
  uint64_t value = 4;
  Child child;
  ProcessCard card = card_of(child.pid());
  PeerMemory right(card, 1);
  card.started -= 1;
  PeerMemory wrong(card, 1);
  const PeerMemory::RemoteRange range{number_of(&value), sizeof value};
  auto* bytes = reinterpret_cast<uint8_t*>(&value);
  value = 5;
  CHECK_THROWS(ErrorCode::kRankLost, wrong.write(bytes, {&range, 1}));
  right.read({&range, 1}, bytes);
  CHECK_EQ(value, 4U);
  value = 6;
  right.write(bytes, {&range, 1});
  value = 0;
  right.read({&range, 1}, bytes);
  CHECK_EQ(value, 6U);
}

// It has ended, but its parent has not asked for its end: its number is still its own.
TEST(an_ended_peer_is_named_before_its_number_is_free) {
  uint64_t value = 4;
  Child child;
  PeerMemory memory(card_of(child.pid()), 5);
  const PeerMemory::RemoteRange range{number_of(&value), sizeof value};
  auto* bytes = reinterpret_cast<uint8_t*>(&value);
  memory.write(bytes, {&range, 1});
  child.end_without_asking();
  try {
    memory.write(bytes, {&range, 1});
    CHECK(false);
  } catch (const Error& error) {
    CHECK_EQ(error.rank(), 5);
    CHECK_EQ(std::string(error.what()), "rank 5 is lost: its process has ended or cannot be found");
  }
}

// The files of a process that ends are closed, and with them its segments, before anybody is told
// that it has ended.
TEST(a_segment_that_went_with_its_process_names_the_rank) {
  const Segment made = Segment::create(4096);
  Child child;
  SegmentOffer offer = made.offer();
  offer.pid = child.pid();
  ProcessCard card = card_of(child.pid());
  card.pid_namespace = own_pid_namespace();
  PeerMemory memory(card, 6);
  SegmentOffer other = offer;
  other.fd = -1;
  CHECK_THROWS(ErrorCode::kInternal, memory.mapped(other));
  child.end_without_asking();
  try {
    memory.mapped(offer);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), 6);
    CHECK_EQ(std::string(error.what()), "rank 6 is lost: its process has ended");
  }
}

TEST(memory_that_is_gone_is_an_error_even_in_part) {
  constexpr size_t kPage = 4096;
  auto* pages = static_cast<uint8_t*>(
      mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  CHECK(pages != MAP_FAILED);
  CHECK_EQ(munmap(pages + kPage, kPage), 0);
  const PeerMemory memory({getpid(), 0, {}}, 2);
  const PeerMemory::RemoteRange range{number_of(pages), 2 * kPage};
  std::vector<uint8_t> into(2 * kPage);
  CHECK_THROWS(ErrorCode::kRankLost, memory.read({&range, 1}, into.data()));
  munmap(pages, kPage);
}
