// Which way through a host's memory a payload takes, by how long each took lately.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hvdtune {

enum class SharedWay : uint8_t {
  kArena,       // copied into the arena and out of it
  kPeerCopies,  // copied by the kernel from process to process
};
inline constexpr size_t kSharedWays = 2;

// How long a way takes may change at any moment: two processors of a virtual machine share a cache
// now, and seconds later none, and then writing memory that the other one has read takes ten times
// as long. So each way is tried again now and then, for sizes that differ by a factor of two, in
// about a fiftieth of the time that operations take: by the clock alone, a job that computes
// between them would do little else. A trial is several operations, since the first ones find their
// memory in no cache.
//
// The ranks of a set decide alike: local rank 0 measures and proposes, and shows its proposal to
// the others, who agree to it at a meeting of all.
class SharedWays {
 public:
  // Two bits for each size, one more than the way's number or 0 where nothing is decided: those
  // above 2i are for payloads of more than 2^(i-1) and at most 2^i bytes.
  using Agreement = uint64_t;

  // None where nothing is decided for payloads of this size.
  std::optional<SharedWay> way(size_t bytes) const;
  void agree(Agreement agreement) { agreement_ = agreement; }

  // On local rank 0: a payload took that way.
  void note(size_t bytes, SharedWay way, bool may_copy_from_peers, uint64_t took_ns);
  Agreement proposal() const { return proposal_; }

 private:
  static constexpr size_t kSizes = 32;
  static constexpr size_t kSamples = 3;
  // What is known of one way at one size.
  struct Times {
    std::array<uint64_t, kSamples> took_ns{};
    size_t count = 0;
    uint64_t spent_ns = 0;  // in the last trial
    uint64_t last_ns = 0;   // when it was taken last, by the size's busy_ns
    // The shortest of the last samples: a rank that lost its processor took longer. REQUIRES: one.
    uint64_t best_ns() const;
  };
  struct Size {
    std::array<Times, kSharedWays> ways;
    size_t best = 0;
    std::optional<size_t> trial;  // the way that is being tried
    size_t tried = 0;             // operations of it
    uint64_t busy_ns = 0;         // how long all operations have taken
  };
  static bool is_trial_over(const Size& size);
  static size_t next_way(Size& size, bool may_copy_from_peers);

  std::array<Size, kSizes> sizes_;
  Agreement agreement_ = 0;
  Agreement proposal_ = 0;
};

}  // namespace hvdtune
