// The fuzz target of studies/fuzz on a fixed number of inputs, the same on every run.
#include <random>

#include "check.h"
#include "wire/feed_decoders.h"
#include "wire/samples.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

std::vector<std::vector<uint8_t>> valid_inputs() {
  Announce all_small;
  for (int i = 0; i < 8; ++i) all_small.requests.push_back({sample_request("t"), {i}});
  FrameEncoder encoder(Key{}, 1);
  std::vector<uint8_t> frames = encoder.encode(FrameKind::kCycle, encode(sample_cycle()));
  const std::vector<uint8_t> second = encoder.encode(FrameKind::kPing, {});
  frames.insert(frames.end(), second.begin(), second.end());
  return {encode(sample_announce()),
          encode(all_small),
          encode(sample_cycle()),
          encode(Notice{1, "why"}),
          encode(StepReport{1, 2, 3, {4, 5}}),
          encode(Proposal{}),
          encode(sample_report()),
          frames};
}

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  void change(std::vector<uint8_t>& bytes) {
    const size_t changes = 1 + below(4);
    for (size_t i = 0; i < changes && !bytes.empty(); ++i) change_once(bytes);
  }
  size_t below(size_t count) { return random_() % count; }

 private:
  void change_once(std::vector<uint8_t>& bytes) {
    const size_t at = below(bytes.size());
    switch (below(5)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1U << below(8));
        return;
      case 1:
        bytes[at] = static_cast<uint8_t>(random_());
        return;
      case 2:
        bytes.resize(at);
        return;
      case 3:
        bytes.insert(bytes.begin() + static_cast<ptrdiff_t>(at), 1 + below(8),
                     static_cast<uint8_t>(random_()));
        return;
      default:
        for (size_t i = at; i < std::min(at + 4, bytes.size()); ++i) bytes[i] = 0xff;
    }
  }

  std::mt19937 random_;
};

}  // namespace

TEST(mutations_are_read_or_refused) {
  const std::vector<std::vector<uint8_t>> seeds = valid_inputs();
  Mutator mutator(20);
  for (int i = 0; i < cases(50'000); ++i) {
    std::vector<uint8_t> bytes = seeds[mutator.below(seeds.size())];
    mutator.change(bytes);
    CHECK(survives_decoders(bytes));
  }
}
