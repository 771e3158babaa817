#include "transport/shm/pool.h"

#include <algorithm>
#include <numeric>

#include "check.h"

using namespace hvdtune;

namespace {

constexpr size_t kPage = 4096;

}  // namespace

TEST(blocks_are_apart_and_page_aligned) {
  const std::shared_ptr<Pool> pool = Pool::create();
  std::vector<std::unique_ptr<Pool::Allocation>> blocks;
  for (const size_t bytes : {0UL, 1UL, 4096UL, 4097UL, 1'000'000UL}) {
    blocks.push_back(pool->allocate(bytes));
    CHECK_EQ(blocks.back()->bytes(), bytes);
    CHECK_EQ(reinterpret_cast<uintptr_t>(blocks.back()->data()) % kPage, 0U);
  }
  uint8_t mark = 1;
  for (const auto& block : blocks) std::fill_n(block->data(), block->bytes(), mark++);
  mark = 1;
  for (const auto& block : blocks) {
    const uint8_t* data = block->data();
    CHECK_EQ(std::accumulate(data, data + block->bytes(), size_t{0}), block->bytes() * mark++);
  }
}

TEST(a_peer_finds_a_block_through_the_range_that_holds_it) {
  const std::shared_ptr<Pool> pool = Pool::create();
  const std::unique_ptr<Pool::Allocation> block = pool->allocate(100);
  block->data()[99] = 77;
  const std::vector<Pool::SegmentRange> ranges = pool->ranges();
  CHECK_EQ(ranges.size(), 1U);
  CHECK(ranges[0].holds(block->data(), 100));
  CHECK(!ranges[0].holds(block->data(), ranges[0].offer.bytes));
  const Segment peer = Segment::open(ranges[0].offer, 1);
  CHECK_EQ(int{peer.data()[block->data() - ranges[0].base + 99]}, 77);
}

TEST(freed_memory_is_used_again_in_larger_pieces) {
  const std::shared_ptr<Pool> pool = Pool::create();
  std::vector<std::unique_ptr<Pool::Allocation>> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(pool->allocate(40 * kPage));
  const uint8_t* first = blocks[0]->data();
  for (const size_t i : {1UL, 3UL, 0UL, 2UL}) blocks[i].reset();
  CHECK_EQ(static_cast<const void*>(pool->allocate(160 * kPage)->data()),
           static_cast<const void*>(first));
  for (auto& block : blocks) block.reset();
  const size_t all = pool->ranges()[0].offer.bytes - kPage;
  CHECK_EQ(static_cast<const void*>(pool->allocate(all)->data()), static_cast<const void*>(first));
  CHECK_EQ(pool->ranges().size(), 1U);
}

TEST(a_block_larger_than_a_segment_has_one_of_its_own) {
  const std::shared_ptr<Pool> pool = Pool::create();
  const auto small = pool->allocate(1);
  const auto large = pool->allocate(size_t{300} << 20);
  large->data()[large->bytes() - 1] = 1;
  CHECK_EQ(pool->ranges().size(), 2U);
}

TEST(memory_outlives_whoever_made_the_pool) {
  std::unique_ptr<Pool::Allocation> block;
  {
    const std::shared_ptr<Pool> pool = Pool::create();
    block = pool->allocate(kPage);
  }
  block->data()[0] = 5;
  CHECK_EQ(int{block->data()[0]}, 5);
}
