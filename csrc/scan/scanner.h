// Reads runs of well-formed events of a Chrome trace into columns: the fast way through a large
// file. It knows no damage: it stops before the first event that it does not understand, and
// hvdtune/timeline/reading/json/document.py reads that one with care and says what is wrong with
// it.
//
// Not thread-safe: one scanner per file and thread.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "scan/texts.h"

namespace hvdtune::scan {

// What an event does not say; hvdtune/timeline/reading/json/batch.py has the same.
inline constexpr std::int64_t kMissing = INT64_MIN;
inline constexpr std::size_t kNumbers = 5;  // seq, bucket, bytes, process_set, cached

// Events in the order of the file. All columns have one length, but for `args_ends`, which begins
// with a 0.
struct Columns {
  std::vector<std::uint8_t> phase;
  std::vector<std::int32_t> name, category, pid, tid, id;
  std::vector<std::int64_t> at_ns, lasted_ns;
  std::array<std::vector<std::int64_t>, kNumbers> numbers;
  std::vector<std::int32_t> args_ends{0};
  std::vector<std::uint8_t> args;

  void reserve(std::size_t events, std::size_t args_bytes);
};

struct Event;

// As many bytes as `Columns::args_ends` can count.
inline constexpr std::size_t kMostArgsBytes = std::numeric_limits<std::int32_t>::max();

class Scanner {
 public:
  // A run stops before an event with which the arguments of all would have more bytes than this.
  explicit Scanner(std::size_t most_args_bytes = kMostArgsBytes)
      : most_args_bytes_(most_args_bytes) {}

  // Appends the events from data[at] on, which is a "{", and returns where it stopped: behind the
  // last event that it appended, or at `at`. `data` must be UTF-8 that a NUL follows. Begins and
  // ends of slices go to `halves`, everything else to `whole`.
  std::size_t run(std::string_view data, std::size_t at, Columns& whole, Columns& halves);

  // The number of a text; each has one, "" has 0.
  std::int32_t code(std::string_view text) { return texts_.code(text); }
  const std::deque<std::string>& texts() const { return texts_.all(); }

 private:
  struct Size {
    std::size_t events = 0, args_bytes = 0;
  };

  const std::size_t most_args_bytes_;
  Texts texts_;
  // Sizes of the last run: the next will be like it, and columns that grow are copied.
  Size last_whole_, last_halves_;

  std::size_t read(std::string_view data, std::size_t at, Columns& whole, Columns& halves);
  // False when there is no room for its arguments.
  bool append(Event& event, Columns& columns);
};

}  // namespace hvdtune::scan
