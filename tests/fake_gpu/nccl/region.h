// The memory that the ranks of a communicator share, whether they are processes or threads.
//
// Nothing in it is a lock: a rank that is killed leaves its counters where they are, and the others
// wait for it until they are aborted, as they would on a real device.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fake_gpu {

inline constexpr size_t kSlotBytes = 64 * 1024;
inline constexpr size_t kMailBytes = 32 * 1024;

// What all ranks must agree on.
struct Descriptor {
  int kind;
  int dtype;
  int op;
  int root;
  uint64_t count;
  int buffers_registered;  // bit 0: what is sent, bit 1: what is received
};

struct alignas(128) RankCard {
  std::atomic<uint32_t> joined;
  int process;
  uint64_t host;
  uint64_t device;
  // Rounds of collectives: what this rank has written into its slot, and read of all others'.
  std::atomic<uint64_t> written;
  std::atomic<uint64_t> read;
  Descriptor descriptor;
  // ncclCommSplit
  std::atomic<uint64_t> splits_written;
  std::atomic<uint64_t> splits_read;
  int color;
  int key;
};

// What one rank tells another of its device.
struct QueueState {
  uint64_t waiting = 0;     // the number, of those with the other, of the first kernel that waits
  uint64_t first_comm = 0;  // the communicator of the kernel that has the device before it
  uint64_t first = 0;       // its number, of those with the other; 0: it does not need the other
};

// Written by one rank.
class alignas(128) QueueCard {
 public:
  void write(const QueueState& state);
  // False while it is written.
  bool read(QueueState& state) const;

 private:
  std::atomic<uint64_t> version_;  // odd while it is written
  std::atomic<uint64_t> waiting_;
  std::atomic<uint64_t> first_comm_;
  std::atomic<uint64_t> first_;
};

// From one rank to another, a chunk at a time.
struct alignas(128) Mail {
  std::atomic<uint64_t> sent;
  std::atomic<uint64_t> taken;
  uint64_t message_bytes;
  uint64_t chunk_bytes;
  char chunk[kMailBytes];
};

class Region {
 public:
  // Throws std::runtime_error with a sentence.
  Region(std::string name, int ranks);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  RankCard& card(int rank) { return cards_[rank]; }
  char* slot(int rank) { return slots_ + static_cast<size_t>(rank) * kSlotBytes; }
  Mail& mail(int from, int to) { return mails_[static_cast<size_t>(from) * ranks_ + to]; }
  QueueCard& queue(int from, int to) { return queues_[static_cast<size_t>(from) * ranks_ + to]; }

  // Removes the name; whoever has joined keeps the memory.
  void unlink();

  // A bell for all ranks: read it, look whether what one waits for is there, sleep until it rings.
  uint32_t bell() const { return bell_->load(); }
  void ring();
  // Returns after a ring since `heard`, and in any case soon, so that flags can be looked at.
  void sleep(uint32_t heard);

 private:
  const std::string name_;
  const int ranks_;
  size_t bytes_ = 0;
  void* memory_ = nullptr;
  std::atomic<uint32_t>* bell_ = nullptr;
  RankCard* cards_ = nullptr;
  QueueCard* queues_ = nullptr;
  Mail* mails_ = nullptr;
  char* slots_ = nullptr;
};

// A new name, with this process's number in it. Removes what processes that died have left.
std::string new_region_name();

}  // namespace fake_gpu
