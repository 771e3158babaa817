#include "collective/measure_costs.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "collective/reduce/kernels.h"
#include "transport/backoff.h"

namespace hvdtune {
namespace {

constexpr double kKiB = 1024;
constexpr size_t kNearBytes = size_t{128} << 10;
constexpr size_t kFarBytes = size_t{2} << 20;
constexpr int kNearRounds = 64;
constexpr int kFarRounds = 6;
constexpr int kRepeats = 8;
constexpr int kMeetings = 400;
constexpr int kWakeUps = 24;
constexpr int kPauses = 400;
// For each of the measurements with another thread.
constexpr uint64_t kPatienceNs = 10'000'000;
constexpr long kPauseNs = 60'000;

template <typename Work>
uint64_t ns_of(Work work) {
  const uint64_t begin = now_ns();
  work();
  return now_ns() - begin;
}

// The shortest of several runs, in nanoseconds.
template <typename Work>
double best_ns(int repeats, Work work) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < repeats; ++i) best = std::min(best, ns_of(work));
  return static_cast<double>(best);
}

// Copies of this process's memory as of another one's. False where the kernel does not allow it.
bool copy_by(decltype(&process_vm_readv) call, uint8_t* local, uint8_t* remote, size_t bytes) {
  const iovec here{local, bytes};
  const iovec there{remote, bytes};
  return call(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

bool copy_from_peer(uint8_t* theirs, uint8_t* to, size_t bytes) {
  return copy_by(&process_vm_readv, to, theirs, bytes);
}

bool copy_to_peer(uint8_t* from, uint8_t* theirs, size_t bytes) {
  return copy_by(&process_vm_writev, from, theirs, bytes);
}

// Two threads on different processors that meet. Whoever waits spins, or sleeps; once the time is
// over nobody waits any more.
class TwoThreads {
 public:
  explicit TwoThreads(bool sleep) : sleep_(sleep), end_ns_(now_ns() + kPatienceNs) {}

  // Runs body(0) on this thread and body(1) on another one, in rounds that begin together. False if
  // there was no time for all of them.
  template <typename Body>
  bool run(int rounds, Body body) {
    const int processor = sched_getcpu();
    const auto rounds_of = [&](size_t self) {
      for (int round = 0; round < rounds && meet(self); ++round) body(self);
    };
    const std::jthread other([&] {
      leave(processor);
      rounds_of(1);
    });
    rounds_of(0);
    return !is_over_;
  }

  // The next meeting: tells the other thread, and waits for it. False once the time is over.
  bool meet(size_t self) {
    const uint32_t count = tell(self);
    return await(1 - self, count);
  }
  // The other way round.
  void answer(size_t self) {
    if (await(1 - self, met_[self] + 1)) tell(self);
  }

 private:
  static void leave(int processor) {
    cpu_set_t others;
    if (sched_getaffinity(0, sizeof others, &others) != 0) return;
    CPU_CLR(static_cast<size_t>(processor), &others);
    if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
  }

  uint32_t tell(size_t self) {
    const uint32_t count = met_[self].fetch_add(1) + 1;
    if (sleep_) syscall(SYS_futex, &met_[self], FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    return count;
  }

  bool await(size_t peer, uint32_t count) {
    for (;;) {
      const uint32_t now = met_[peer].load(std::memory_order_acquire);
      if (now >= count) return true;
      if (is_over_ || now_ns() > end_ns_) {
        is_over_ = true;
        return false;
      }
      if (sleep_) {
        const timespec slice{0, static_cast<long>(kPatienceNs)};
        syscall(SYS_futex, &met_[peer], FUTEX_WAIT_PRIVATE, now, &slice, nullptr, 0);
      } else {
        cpu_pause();
      }
    }
  }

  const bool sleep_;
  const uint64_t end_ns_;
  std::atomic<bool> is_over_{false};
  std::array<std::atomic<uint32_t>, 2> met_{};
};

// Half of the median time in which a thread tells another one and hears back; `usual` if that
// cannot be measured.
double hand_over_ns(int rounds, bool sleep, double usual) {
  TwoThreads pair(sleep);
  std::vector<uint64_t> took;
  const bool all = pair.run(rounds, [&](size_t self) {
    if (self == 1) return pair.answer(1);
    if (sleep) {  // so that the other one sleeps, and its processor with it
      const timespec time{0, kPauseNs};
      nanosleep(&time, nullptr);
    }
    took.push_back(ns_of([&] { pair.meet(0); }));
  });
  if (!all) return usual;
  const auto middle = took.begin() + static_cast<ptrdiff_t>(took.size() / 2);
  std::nth_element(took.begin(), middle, took.end());
  return static_cast<double>(*middle) / 2;
}

// An allreduce of two ranks, both at work at once, by either way through the host's memory.
class TwoRanks {
 public:
  explicit TwoRanks(const HostCosts& costs) : costs_(costs) {}

  // For each KiB that is copied; `usual` if it cannot be measured.
  double copy_ns(int rounds, size_t bytes, double usual) {
    const auto packed = [&](TwoThreads& pair, size_t self) {
      const size_t half = bytes / 2;
      uint8_t* const mine = ranks_[self].own.data() + self * half;
      uint8_t* const others = ranks_[self].own.data() + (1 - self) * half;
      uint8_t* const theirs = ranks_[1 - self].slot.data();
      std::memcpy(ranks_[self].slot.data(), others, half);
      if (!pair.meet(self)) return;
      reduce(mine, theirs, mine, theirs, half);
      if (!pair.meet(self)) return;
      std::memcpy(others, ranks_[self].slot.data(), half);
    };
    return per_kib(rounds, bytes, bytes, 0, usual, packed);
  }

  double peer_copy_ns(int rounds, size_t bytes, double usual) {
    const size_t piece = std::min(bytes / 2, kNearBytes);
    const auto copied = [&](TwoThreads& pair, size_t self) {
      if (!pair.meet(self)) return;
      uint8_t* const fetched = ranks_[self].slot.data();
      for (size_t at = self * bytes / 2; at < (self + 1) * bytes / 2; at += piece) {
        uint8_t* const mine = ranks_[self].own.data() + at;
        uint8_t* const theirs = ranks_[1 - self].own.data() + at;
        copy_from_peer(theirs, fetched, piece);
        reduce(mine, fetched, mine, nullptr, piece);
        copy_to_peer(mine, theirs, piece);
      }
      pair.meet(self);
    };
    const double calls = static_cast<double>(bytes / piece);
    return per_kib(rounds, bytes, bytes, calls, usual, copied);
  }

 private:
  struct Memory {
    // A vector's pages are its own, none the kernel's empty one.
    std::vector<uint8_t> own = std::vector<uint8_t>(kFarBytes, 1);
    std::vector<uint8_t> slot = std::vector<uint8_t>(kFarBytes, 2);
  };

  // The best round, without what the ways have in common and the price of the calls.
  template <typename Way>
  double per_kib(int rounds, size_t bytes, size_t copied_bytes, double calls, double usual,
                 Way way) {
    TwoThreads pair(false);
    uint64_t best = UINT64_MAX;
    const bool all = pair.run(rounds, [&](size_t self) {
      const uint64_t ns = ns_of([&] { way(pair, self); });
      if (self == 0) best = std::min(best, ns);
    });
    if (!all) return usual;
    const double common_ns =
        static_cast<double>(bytes) / kKiB / 2 * costs_.reduce_ns + 2 * costs_.meet_ns;
    const double ns = static_cast<double>(best) - common_ns - calls * costs_.peer_call_ns;
    return std::max(1.0, ns * kKiB / static_cast<double>(copied_bytes));
  }

  static void reduce(const uint8_t* a, const uint8_t* b, uint8_t* out, uint8_t* also,
                     size_t bytes) {
    kernels_for(DType::kFloat32, ReduceOp::kSum).pair(a, b, out, also, bytes / sizeof(float), 1);
  }

  const HostCosts& costs_;
  std::array<Memory, 2> ranks_;
};

double measure_reduce_ns() {
  const Kernels& sum = kernels_for(DType::kFloat32, ReduceOp::kSum);
  std::vector<float> a(kNearBytes / sizeof(float), 1.0F);
  std::vector<float> b(a);
  const double ns =
      best_ns(kRepeats, [&] { sum.pair(a.data(), b.data(), b.data(), nullptr, a.size(), 1); });
  return ns * kKiB / static_cast<double>(kNearBytes);
}

}  // namespace

HostCosts measure_host_costs() {
  HostCosts costs;
  const long cache_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (cache_bytes > 0) costs.cache_bytes = static_cast<double>(cache_bytes);
  costs.spin_ns = best_ns(kRepeats,
                          [] {
                            for (int i = 0; i < kPauses; ++i) cpu_pause();
                          }) /
                  kPauses;
  costs.meet_ns = hand_over_ns(kMeetings, false, costs.meet_ns);
  costs.wake_ns = hand_over_ns(kWakeUps, true, costs.wake_ns);
  costs.reduce_ns = measure_reduce_ns();
  TwoRanks ranks(costs);
  costs.copy_ns = ranks.copy_ns(kNearRounds, kNearBytes, costs.copy_ns);
  costs.far_copy_ns = ranks.copy_ns(kFarRounds, kFarBytes, costs.far_copy_ns);
  std::array<uint8_t, 64> some{};
  std::array<uint8_t, 64> others{};
  if (!copy_from_peer(others.data(), some.data(), some.size()) ||
      !copy_to_peer(some.data(), others.data(), some.size())) {
    return costs;
  }
  costs.peer_call_ns =
      best_ns(2 * kRepeats, [&] { copy_from_peer(others.data(), some.data(), some.size()); });
  costs.peer_copy_ns = ranks.peer_copy_ns(kNearRounds, kNearBytes, costs.peer_copy_ns);
  costs.far_peer_copy_ns = ranks.peer_copy_ns(kFarRounds, kFarBytes, costs.far_peer_copy_ns);
  return costs;
}

}  // namespace hvdtune
