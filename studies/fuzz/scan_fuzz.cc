// Any bytes as the events of a trace: what the scanner takes in is whole, and nothing lies outside
// of the text.
//
//   input := u8 where to begin, the text
#include <algorithm>
#include <string>

#include "scan/scanner.h"
#include "script.h"

namespace hvdtune::fuzz {
namespace {

bool is_whole(const scan::Columns& columns, size_t texts) {
  const size_t rows = columns.phase.size();
  for (const auto* codes :
       {&columns.name, &columns.category, &columns.pid, &columns.tid, &columns.id}) {
    const auto is_known = [texts](int32_t code) {
      return code >= 0 && static_cast<size_t>(code) < texts;
    };
    if (codes->size() != rows || !std::ranges::all_of(*codes, is_known)) return false;
  }
  const auto is_long = [rows](const auto& column) { return column.size() == rows; };
  const auto& ends = columns.args_ends;
  return columns.at_ns.size() == rows && columns.lasted_ns.size() == rows &&
         std::ranges::all_of(columns.numbers, is_long) && ends.size() == rows + 1 &&
         std::ranges::is_sorted(ends) && static_cast<size_t>(ends.back()) == columns.args.size();
}

void run(const std::string& text, size_t at) {
  scan::Scanner scanner;
  scan::Columns whole, halves;
  const size_t stop = scanner.run(text, at, whole, halves);
  require(at <= stop && stop <= text.size(), "it stops within the text");
  require(is_whole(whole, scanner.texts().size()), "events are whole");
  require(is_whole(halves, scanner.texts().size()), "begins and ends are whole");
  const bool is_any = !whole.phase.empty() || !halves.phase.empty();
  require(is_any == (stop > at), "it moves on where it takes something in");
  if (is_any) require(text[stop - 1] == '}', "an event ends where it stops");

  // What it took in it takes in again, with nothing behind it.
  scan::Columns again, again_halves;
  scan::Scanner other;
  require(other.run(text.substr(0, stop), at, again, again_halves) == stop &&
              again.phase == whole.phase && again_halves.phase == halves.phase &&
              again.at_ns == whole.at_ns && again.args == whole.args,
          "what follows an event does not change it");
}

}  // namespace
}  // namespace hvdtune::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  hvdtune::fuzz::run(text, data[0] % text.size());
  return 0;
}
