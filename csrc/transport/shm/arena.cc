#include "transport/shm/arena.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/failpoint.h"
#include "base/hmac.h"
#include "base/processors.h"
#include "base/status.h"
#include "transport/backoff.h"
#include "transport/shm/peer_process.h"

namespace hvdtune {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLine = 64;
constexpr size_t kAreasPerRank = 7;
constexpr int kYields = 32;
constexpr int kYieldsOfReader = 8;
// Who had the processor for so long computes, and will again: a sleeper is woken up sooner.
constexpr uint64_t kLongYieldNs = 50'000;
// After this number of meetings in a row on one processor, one of the two moves away.
constexpr int kMeetingsTogether = 16;
constexpr uint64_t kSliceNs = 20'000'000;
constexpr uint64_t kLeaveSliceNs = 50'000;
constexpr auto kLostRankPatience = std::chrono::milliseconds(100);
constexpr int kWritesSliceMs = 1;

constexpr size_t kHeaderLines = 2;

static_assert(sizeof(ProcessCard) <= kLine);

size_t area_bytes(size_t slot_bytes) { return (slot_bytes + 4095) / 4096 * 4096; }

size_t first_area(size_t local_size) {
  const size_t used =
      Segment::kReserved + kLine * (kHeaderLines + local_size + local_size * local_size);
  return (used + kHugePage - 1) / kHugePage * kHugePage;
}

size_t total_bytes(size_t slot_bytes, size_t local_size) {
  return first_area(local_size) + area_bytes(slot_bytes) * kAreasPerRank * local_size;
}

}  // namespace

// After the segment's own bytes, followed by a card for each local rank and a line for each ordered
// pair of them; the areas start at the next huge page, seven for each rank.
struct alignas(kLine) Arena::Header {
  uint64_t slot_bytes;
  std::atomic<uint64_t> abandoned;  // 0, or an Abandonment; the first one stands
  HostCosts costs;
};

namespace {

// World ranks; `lost` may be -1.
struct Abandonment {
  int by;
  int lost;

  uint64_t packed() const {
    return uint64_t{static_cast<uint32_t>(by + 1)} << 32 | static_cast<uint32_t>(lost + 1);
  }
  static Abandonment of(uint64_t packed) {
    return {static_cast<int>(packed >> 32) - 1, static_cast<int>(packed & 0xffffffff) - 1};
  }
};

}  // namespace

// A cache line that one rank writes for another. Its value is twice the number of meetings that the
// first has come to, plus one once it has left the last of them. If both are the same rank, the
// line is for all: the value shows whether the rank is in a write phase, and the processor is that
// of its last caller. Only that rank writes it, except the sleepers.
struct alignas(kLine) Arena::Line {
  std::atomic<uint64_t> value;
  std::atomic<uint32_t> sleepers;
  std::atomic<int32_t> cpu;  // one more than the number of where its writer last ran; 0: nowhere

  // The half of the value that changes with every step: what a futex can watch.
  void* futex() {
    auto* low = reinterpret_cast<uint32_t*>(&value);
    return std::endian::native == std::endian::little ? low : low + 1;
  }
};

Arena::Arena(Segment segment, size_t slot_bytes, int local_rank, std::vector<int> ranks)
    : segment_(std::move(segment)),
      slot_bytes_(slot_bytes),
      local_rank_(local_rank),
      ranks_(std::move(ranks)),
      met_(ranks_.size()),
      own_card_(std::make_unique<ProcessCard>()),
      memories_(ranks_.size()) {
  const size_t start = first_area(ranks_.size());
  // Only advice: without huge pages the arena works, with more page faults.
  madvise(segment_.data() + start, segment_.bytes() - start, MADV_HUGEPAGE);
  ProcessStat self;
  own_card_->pid = getpid();
  own_card_->started = read_process_stat(getpid(), self) == 0 ? self.started : 0;
  own_card_->pid_namespace = own_pid_namespace();
  own_card_->address = reinterpret_cast<uint64_t>(own_card_->cookie.data());
  random_bytes(own_card_->cookie);
  std::construct_at(&card(local_rank), *own_card_);
}

Arena Arena::create(size_t slot_bytes, std::vector<int> ranks, const HostCosts& costs) {
  static_assert(sizeof(Header) == kHeaderLines * kLine);
  Segment segment = Segment::create(total_bytes(slot_bytes, ranks.size()));
  Arena arena(std::move(segment), slot_bytes, 0, std::move(ranks));
  arena.header().slot_bytes = slot_bytes;
  arena.header().costs = costs;
  return arena;
}

Arena Arena::open(const SegmentOffer& offer, int local_rank, std::vector<int> ranks) {
  Segment segment = Segment::open(offer, ranks.front());
  if (segment.bytes() < first_area(ranks.size())) {
    throw Error(ErrorCode::kInternal, "the shared memory of this host is too small", ranks.front());
  }
  const size_t slot_bytes =
      reinterpret_cast<const Header*>(segment.data() + Segment::kReserved)->slot_bytes;
  if (slot_bytes > segment.bytes() || segment.bytes() != total_bytes(slot_bytes, ranks.size())) {
    throw Error(ErrorCode::kInternal, "the shared memory of this host has a different layout",
                ranks.front());
  }
  return Arena(std::move(segment), slot_bytes, local_rank, std::move(ranks));
}

Arena::Header& Arena::header() const {
  return *std::launder(reinterpret_cast<Header*>(segment_.data() + Segment::kReserved));
}

HostCosts Arena::costs() const { return header().costs; }

uint8_t* Arena::area(int local_rank, int index) const {
  const size_t number =
      kAreasPerRank * static_cast<size_t>(local_rank) + static_cast<size_t>(index);
  return segment_.data() + first_area(ranks_.size()) + number * area_bytes(slot_bytes_);
}

ProcessCard& Arena::card(int local_rank) const {
  return *std::launder(
      reinterpret_cast<ProcessCard*>(segment_.data() + Segment::kReserved +
                                     kLine * (kHeaderLines + static_cast<size_t>(local_rank))));
}

PeerMemory& Arena::memory(int peer) {
  const auto index = static_cast<size_t>(peer);
  if (!memories_[index]) memories_[index].emplace(card(peer), ranks_[index]);
  return *memories_[index];
}

bool Arena::has_one_pid_namespace() const {
  const uint64_t own = own_card_->pid_namespace;
  for (int peer = 0; peer < local_size(); ++peer) {
    if (own == 0 || card(peer).pid_namespace != own || card(peer).started == 0) return false;
  }
  return true;
}

int Arena::processors() const {
  std::vector<int> pids = {0};
  for (int rank = 0; rank < local_size() && has_one_pid_namespace(); ++rank) {
    if (rank != local_rank_) pids.push_back(card(rank).pid);
  }
  return usable_processors(pids);
}

Arena::Line& Arena::line(int from, int to) const {
  auto* lines = reinterpret_cast<Line*>(segment_.data() + Segment::kReserved +
                                        kLine * (kHeaderLines + ranks_.size()));
  return *std::launder(lines + from * local_size() + to);
}

namespace {

int32_t this_processor() { return sched_getcpu() + 1; }

// Moves the calling thread to a processor that is not among `taken`, if it may run on one.
void move_off(const std::vector<int32_t>& taken) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  cpu_set_t free = allowed;
  for (const int32_t cpu : taken) {
    if (cpu > 0) CPU_CLR(static_cast<size_t>(cpu - 1), &free);
  }
  // The kernel moves it at once; afterwards it may run where it could before.
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(0, sizeof free, &free) != 0) return;
  sched_setaffinity(0, sizeof allowed, &allowed);
}

}  // namespace

void Arena::move_apart() {
  const int32_t here = this_processor();
  std::atomic<int32_t>& mine = line(local_rank_, local_rank_).cpu;
  mine.store(here, std::memory_order_relaxed);
  bool together = false;
  for (int peer = 0; peer < local_rank_ && !together; ++peer) {
    together = line(peer, peer).cpu.load(std::memory_order_relaxed) == here;
  }
  if (!together) return;
  std::vector<int32_t> taken;
  for (int rank = 0; rank < local_size(); ++rank) {
    taken.push_back(line(rank, rank).cpu.load(std::memory_order_relaxed));
  }
  move_off(taken);
  mine.store(this_processor(), std::memory_order_relaxed);
}

// Two threads that wake each other up and do little else are kept on one processor by the kernel.
void Arena::note_meeting(int peer, bool together) {
  if (peer >= local_rank_) return;
  if (!together) {
    if (peer == together_with_) meetings_together_ = 0;
    return;
  }
  if (peer != together_with_) meetings_together_ = 0;
  together_with_ = peer;
  if (++meetings_together_ == kMeetingsTogether) {
    meetings_together_ = 0;
    std::vector<int32_t> taken = {this_processor()};
    for (int rank = 0; rank < local_size(); ++rank) {
      taken.push_back(line(rank, local_rank_).cpu.load(std::memory_order_relaxed));
    }
    move_off(taken);
  }
}

// The poster moves the value and then looks for sleepers, a sleeper counts itself and then looks
// at the value (in the kernel, too): one of them sees the other.
void Arena::post(int peer) {
  FAILPOINT("arena/post");
  Line& mine = line(local_rank_, peer);
  mine.cpu.store(this_processor(), std::memory_order_relaxed);
  mine.value.store(2 * ++met_[static_cast<size_t>(peer)], std::memory_order_seq_cst);
  FAILPOINT("arena/posted");
  if (mine.sleepers.load(std::memory_order_seq_cst) != 0) {
    syscall(SYS_futex, mine.futex(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Arena::await(int peer, const WaitPolicy& policy) {
  FAILPOINT("arena/await");
  Line& theirs = line(peer, local_rank_);
  const uint64_t value = 2 * met_[static_cast<size_t>(peer)];
  const auto reached = [&] { return theirs.value.load(std::memory_order_acquire) >= value; };
  // On the peer's own processor a wait would keep the peer from running.
  const bool together = theirs.cpu.load(std::memory_order_relaxed) == this_processor();
  if (policy.spins > 0) note_meeting(peer, together);
  for (int i = 0; i < (together ? 0 : policy.spins); ++i) {
    if (reached()) return;
    cpu_pause();
  }
  // Where ranks share processors in any case, a turn is sooner had by yielding than by sleeping.
  for (int i = 0; i < (policy.spins > 0 ? 0 : kYields); ++i) {
    if (reached()) return;
    const uint64_t before_ns = now_ns();
    sched_yield();
    if (now_ns() - before_ns >= kLongYieldNs) break;
  }
  for (;;) {
    if (reached()) return;
    check(peer, policy);
    const uint64_t left_ns = policy.deadline.at_ns() - now_ns();
    const timespec slice = {0, static_cast<long>(std::min(left_ns, kSliceNs))};
    theirs.sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = theirs.value.load(std::memory_order_seq_cst);
    FAILPOINT("arena/sleep");
    if (seen < value) {
      syscall(SYS_futex, theirs.futex(), FUTEX_WAIT, static_cast<uint32_t>(seen), &slice, nullptr,
              0);
    }
    theirs.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

// No fence and no wake-up: this happens in every operation, waiting for it seldom.
void Arena::leave(int peer) {
  FAILPOINT("arena/leave");
  line(local_rank_, peer)
      .value.store(2 * met_[static_cast<size_t>(peer)] + 1, std::memory_order_release);
}

void Arena::await_left(int peer, const WaitPolicy& policy) {
  const Line& theirs = line(peer, local_rank_);
  const uint64_t value = 2 * met_[static_cast<size_t>(peer)] + 1;
  for (int i = 0; theirs.value.load(std::memory_order_acquire) < value; ++i) {
    if (i < policy.spins) {
      cpu_pause();
    } else if (i < policy.spins + kYieldsOfReader) {
      sched_yield();
    } else {
      FAILPOINT("arena/await_left");
      check(peer, policy);
      const timespec slice = {0, kLeaveSliceNs};
      nanosleep(&slice, nullptr);
    }
  }
}

void Arena::check(int peer, const WaitPolicy& policy) const {
  if (policy.stop.raised()) {
    throw Error(ErrorCode::kShutdown, "stopped while waiting for a local rank");
  }
  if (policy.deadline.passed()) {
    const int rank = ranks_[static_cast<size_t>(peer)];
    throw Error(ErrorCode::kTimeout, "timed out waiting for rank " + std::to_string(rank), rank);
  }
}

void Arena::enter(uint64_t subset, std::span<const int> peers, const WaitPolicy& policy) {
  if (subset == present_) return;
  for (const int peer : present_peers_) await_left(peer, policy);
  present_ = subset;
  present_peers_.assign(peers.begin(), peers.end());
}

// The writer sets its word and then looks for the mark, the abandoner sets the mark and then looks
// at the words: one of them sees the other.
Arena::WritePhase::WritePhase(Arena& arena)
    : word_(arena.line(arena.local_rank_, arena.local_rank_).value) {
  word_.store(1, std::memory_order_seq_cst);
  if (arena.header().abandoned.load(std::memory_order_seq_cst) == 0) return;
  word_.store(0, std::memory_order_release);
  arena.check_not_abandoned();
}

void Arena::check_not_abandoned() const {
  const uint64_t packed = header().abandoned.load(std::memory_order_acquire);
  if (packed == 0) return;
  const auto [by, lost] = Abandonment::of(packed);
  const std::string who = "rank " + std::to_string(by);
  if (lost == ranks_[static_cast<size_t>(local_rank_)]) {
    throw Error(ErrorCode::kRankLost, who + " has lost this rank", by);
  }
  if (lost < 0) throw Error(ErrorCode::kRankLost, who + " has ended the job", by);
  throw Error(ErrorCode::kRankLost, who + " has lost rank " + std::to_string(lost), lost);
}

std::string Arena::abandon(int lost, std::chrono::nanoseconds patience,
                           const std::function<void(const std::string&)>& warn,
                           std::chrono::nanoseconds undead_patience) {
  const Deadline for_others = Deadline::in(patience);
  const Deadline for_lost =
      Deadline::in(std::min<std::chrono::nanoseconds>(kLostRankPatience, patience));
  const int self = ranks_[static_cast<size_t>(local_rank_)];
  uint64_t none = 0;
  header().abandoned.compare_exchange_strong(none, Abandonment{self, lost}.packed(),
                                             std::memory_order_seq_cst);
  std::string still_writes;
  for (int peer = 0; peer < local_size(); ++peer) {
    if (peer == local_rank_) continue;
    const bool is_lost = ranks_[static_cast<size_t>(peer)] == lost;
    const std::string who =
        await_end_of_writes(peer, is_lost ? for_lost : for_others, undead_patience, warn);
    if (still_writes.empty()) still_writes = who;
  }
  return still_writes;
}

std::string Arena::await_end_of_writes(int peer, Deadline patience,
                                       std::chrono::nanoseconds undead_patience,
                                       const std::function<void(const std::string&)>& warn) const {
  const std::atomic<uint64_t>& word = line(peer, peer).value;
  if (word.load(std::memory_order_seq_cst) == 0) return {};
  const ProcessCard& theirs = card(peer);
  PeerProcess process(theirs.pid, theirs.started);
  const std::string who = "rank " + std::to_string(ranks_[static_cast<size_t>(peer)]) + " (pid " +
                          std::to_string(theirs.pid) + ")";
  const auto writes = [&] {
    return word.load(std::memory_order_seq_cst) != 0 && !process.await_end(kWritesSliceMs);
  };
  while (writes()) {
    if (!patience.passed()) continue;
    const std::string why = process.kill();
    if (!why.empty()) {
      warn(who + " stopped while it wrote into this rank's memory, and cannot be killed: " + why +
           "; waiting up to " + seconds_text(undead_patience) + " until it continues or ends");
    }
    const Deadline for_undead = Deadline::in(undead_patience);
    while (writes()) {
      if (!for_undead.passed()) continue;
      if (!why.empty() || !process.is_dying_without_copying()) return who;
      warn(who + " did not end within " + seconds_text(undead_patience) +
           " of SIGKILL (state D, perhaps), but no longer writes into this rank's memory");
      return {};
    }
    if (why.empty() && process.await_end(0)) {
      warn(who + " was killed because it stopped while it wrote into this rank's memory");
    }
    return {};
  }
  return {};
}

}  // namespace hvdtune
