// More than 2 and 4 GiB: the arithmetic of every division of work, and real messages whose memory
// is a few MiB mapped over and over.
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "collective/allgather.h"
#include "collective/allreduce/allreduce.h"
#include "collective/broadcast.h"
#include "collective/partition.h"
#include "collective/pipeline.h"
#include "collective/rank_blocks.h"
#include "collective/world.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

// `bytes` of address space that repeat one period, which no power of two is a multiple of: bytes
// at an offset cut to 32 bits are other bytes.
class Repeated {
 public:
  static constexpr size_t kPeriod = size_t{3} << 20;

  explicit Repeated(size_t bytes) : bytes_(bytes) {
    const int fd = memfd_create("repeated", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, kPeriod) == 0);
    void* whole = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(whole != MAP_FAILED);
    data_ = static_cast<uint8_t*>(whole);
    for (size_t at = 0; at < bytes; at += kPeriod) {
      CHECK(mmap(data_ + at, std::min(kPeriod, bytes - at), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    }
    close(fd);
  }
  ~Repeated() { munmap(data_, bytes_); }
  Repeated(const Repeated&) = delete;
  Repeated& operator=(const Repeated&) = delete;

  uint8_t* data() { return data_; }
  uint8_t& operator[](size_t at) { return data_[at]; }

 private:
  uint8_t* data_;
  size_t bytes_;
};

uint8_t pattern(size_t at) { return static_cast<uint8_t>(at * 2654435761U >> 13); }

constexpr size_t kOverTwo = (size_t{1} << 31) + (size_t{1} << 20);
constexpr size_t kOverFour = (size_t{1} << 32) + (size_t{1} << 20);

}  // namespace

TEST(shares_of_terabytes_cover_them_without_overlap) {
  for (const size_t count : {(size_t{1} << 31) + 5, (size_t{1} << 33) - 1, size_t{1} << 42}) {
    for (const int parts : {1, 2, 3, 7, 128}) {
      size_t at = 0;
      for (int i = 0; i < parts; ++i) {
        const ElementRange share = part_of(count, parts, i, 4);
        CHECK_EQ(share.begin, at);
        at += share.count;
      }
      CHECK_EQ(at, count);
    }
  }
}

TEST(chunks_and_blocks_count_in_64_bits) {
  const size_t total = (size_t{5} << 40) + 17;
  const Chunks chunks(total, 4 << 20);
  const Chunk last = chunks[chunks.count() - 1];
  CHECK_EQ(last.begin + last.bytes, total);
  CHECK_EQ(last.bytes, 17UL);
  uint8_t start;
  const size_t sizes[] = {size_t{3} << 32, 1, size_t{1} << 33};
  const RankBlocks<uint8_t> blocks(&start, sizes);
  CHECK_EQ(static_cast<size_t>(blocks.at(2) - &start), (size_t{3} << 32) + 1);
  CHECK_EQ(blocks.part(2, (size_t{1} << 33) - 5, 64), 5UL);
}

TEST(four_gigabytes_are_broadcast_through_shared_memory) {
  World world(2, 1, true);
  world.each([](Group& group, int rank) {
    Repeated data(kOverFour);
    for (size_t i = 0; rank == 1 && i < Repeated::kPeriod; ++i) data[i] = pattern(i);
    Setting setting;
    setting.chunk_bytes = 1 << 20;
    broadcast(group, 1, data.data(), data.data(), kOverFour, setting);
    for (size_t i = 0; i < Repeated::kPeriod; ++i) CHECK(data[i] == pattern(i));
  });
}

TEST(two_gigabytes_are_summed_over_sockets) {
  World world(2, 1, false);
  world.each([](Group& group, int) {
    Repeated input(kOverTwo);
    Repeated output(kOverTwo);
    for (size_t i = 0; i < Repeated::kPeriod; ++i) input[i] = pattern(i) / 2;
    Payload payload;
    payload.add(input.data(), output.data(), kOverTwo);
    Setting setting;
    setting.chunk_bytes = 1 << 20;
    allreduce(group, {DType::kUint8, ReduceOp::kSum, 1.0, 1.0, 2}, payload, setting);
    for (size_t i = 0; i < Repeated::kPeriod; ++i) CHECK(output[i] == pattern(i) / 2 * 2);
  });
}
