#include "scan/scanner.h"

#include <algorithm>
#include <optional>

#include "scan/cursor.h"

namespace hvdtune::scan {

enum Text : std::size_t { kName, kCategory, kPid, kTid, kId };
enum Number : std::size_t { kSeq, kBucket, kBytes, kProcessSet, kCached };

// The texts of an event, with their escapes resolved.
using Unescaped = std::array<std::string, 5>;

struct Event {
  explicit Event(Unescaped& kept) : unescaped(kept) {}

  std::uint8_t phase = 0;
  std::array<std::string_view, 5> texts{};
  std::int64_t at_ns = kMissing, lasted_ns = kMissing, thread_lasted_ns = kMissing;
  std::array<std::int64_t, kNumbers> numbers{-1, -1, -1, -1, -1};
  std::int64_t step = -1, cycle = -1;
  std::string_view args{}, id2{};
  Unescaped& unescaped;
};

namespace {

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

[[gnu::always_inline]] inline bool read_text(Cursor& cursor, Event& event, Text which) {
  bool has_escapes = false;
  const auto written = cursor.string(has_escapes);
  if (!written) return false;
  event.texts[which] = *written;
  if (!has_escapes) return true;
  auto text = unescape(*written);
  if (!text) return false;
  event.unescaped[which] = std::move(*text);
  event.texts[which] = event.unescaped[which];
  return true;
}

[[gnu::always_inline]] inline bool read_text_or_integer(Cursor& cursor, Event& event, Text which) {
  if (cursor.peek() == '"') return read_text(cursor, event, which);
  const char* begin = cursor.at();
  if (!cursor.integer()) return false;
  event.texts[which] = between(begin, cursor.at());
  return true;
}

[[gnu::always_inline]] inline bool read_raw(Cursor& cursor, std::string_view& raw) {
  const char* begin = cursor.at();
  if (!cursor.skip_value(1)) return false;
  raw = between(begin, cursor.at());
  return true;
}

[[gnu::always_inline]] inline bool read_ns(Cursor& cursor, std::int64_t& ns) {
  const auto found = cursor.nanoseconds();
  if (found) ns = *found;
  return found.has_value();
}

[[gnu::always_inline]] inline bool read_number(Cursor& cursor, std::int64_t& number) {
  const Cursor before = cursor;
  if (const auto found = cursor.integer()) {
    number = *found;
    return true;
  }
  cursor = before;
  if (!cursor.skip_value(2)) return false;
  // Integers that are too large are left to those who can hold them.
  const std::string_view text = between(before.at(), cursor.at());
  return text.find_first_not_of("-0123456789") != std::string_view::npos;
}

std::int64_t* number_named(Event& event, std::string_view key) {
  if (key == "seq") return &event.numbers[kSeq];
  if (key == "step") return &event.step;
  if (key == "bucket") return &event.numbers[kBucket];
  if (key == "bytes") return &event.numbers[kBytes];
  if (key == "process_set") return &event.numbers[kProcessSet];
  if (key == "cached") return &event.numbers[kCached];
  return nullptr;
}

// Calls read(key) for each key of the object that begins here; it reads the value.
template <typename Read>
[[gnu::always_inline]] inline bool read_object(Cursor& cursor, Read read) {
  if (!cursor.take('{')) return false;
  cursor.skip_space();
  if (cursor.take('}')) return true;
  while (true) {
    cursor.skip_space();
    bool has_escapes = false;
    const auto key = cursor.string(has_escapes);
    if (!key || has_escapes) return false;
    cursor.skip_space();
    if (!cursor.take(':')) return false;
    cursor.skip_space();
    if (!read(*key)) return false;
    cursor.skip_space();
    if (cursor.take('}')) return true;
    if (!cursor.take(',')) return false;
  }
}

[[gnu::always_inline]] inline bool read_args(Cursor& cursor, Event& event) {
  const char* begin = cursor.at();
  if (cursor.peek() != '{') return read_raw(cursor, event.args);
  const bool whole = read_object(cursor, [&](std::string_view key) {
    std::int64_t* number = number_named(event, key);
    return number ? read_number(cursor, *number) : cursor.skip_value(2);
  });
  event.args = between(begin, cursor.at());
  return whole;
}

[[gnu::always_inline]] inline bool read_phase(Cursor& cursor, Event& event) {
  bool has_escapes = false;
  const auto text = cursor.string(has_escapes);
  if (!text || text->size() != 1 || has_escapes) return false;
  event.phase = static_cast<std::uint8_t>((*text)[0]);
  return event.phase < 0x80;
}

[[gnu::always_inline]] inline bool read_event(Cursor& cursor, Event& event) {
  const bool whole = read_object(cursor, [&](std::string_view key) {
    switch (key.size()) {
      case 2:
        if (key == "ts") return read_ns(cursor, event.at_ns);
        if (key == "ph") return read_phase(cursor, event);
        if (key == "id") return read_text_or_integer(cursor, event, kId);
        break;
      case 3:
        if (key == "pid") return read_text_or_integer(cursor, event, kPid);
        if (key == "tid") return read_text_or_integer(cursor, event, kTid);
        if (key == "dur") return read_ns(cursor, event.lasted_ns);
        if (key == "cat") return read_text(cursor, event, kCategory);
        if (key == "id2") return read_raw(cursor, event.id2);
        break;
      case 4:
        if (key == "name") return read_text(cursor, event, kName);
        if (key == "args") return read_args(cursor, event);
        if (key == "tdur") return read_ns(cursor, event.thread_lasted_ns);
        break;
      case 5:
        if (key == "cycle") return read_number(cursor, event.cycle);
        break;
      default:
        break;
    }
    return cursor.skip_value(1);
  });
  return whole && event.phase != 0;
}

constexpr auto kIsHalf = [] {
  std::array<bool, 256> half{};
  for (const unsigned char letter : {'B', 'E', 'b', 'e', 'S', 'F'}) half[letter] = true;
  return half;
}();

}  // namespace

void Columns::reserve(std::size_t events, std::size_t args_bytes) {
  phase.reserve(events);
  for (auto* codes : {&name, &category, &pid, &tid, &id}) codes->reserve(events);
  for (auto* times : {&at_ns, &lasted_ns}) times->reserve(events);
  for (auto& column : numbers) column.reserve(events);
  args_ends.reserve(events + 1);
  args.reserve(args_bytes);
}

std::size_t Scanner::run(std::string_view data, std::size_t at, Columns& whole, Columns& halves) {
  whole.reserve(last_whole_.events, last_whole_.args_bytes);
  halves.reserve(last_halves_.events, last_halves_.args_bytes);
  const std::size_t stop = read(data, at, whole, halves);
  last_whole_ = {whole.phase.size(), whole.args.size()};
  last_halves_ = {halves.phase.size(), halves.args.size()};
  return stop;
}

std::size_t Scanner::read(std::string_view data, std::size_t at, Columns& whole, Columns& halves) {
  const char* begin = data.data();
  Cursor cursor(begin + at, begin + data.size());
  std::size_t stop = at;
  Unescaped unescaped;
  while (true) {
    Event event(unescaped);
    if (!read_event(cursor, event)) return stop;
    if (!append(event, kIsHalf[event.phase] ? halves : whole)) return stop;
    stop = static_cast<std::size_t>(cursor.at() - begin);
    // One comma and another event, or the careful reader has a look.
    cursor.skip_space();
    if (!cursor.take(',')) return stop;
    cursor.skip_space();
    if (cursor.peek() != '{') return stop;
  }
}

bool Scanner::append(Event& event, Columns& columns) {
  if (event.numbers[kSeq] == -1) event.numbers[kSeq] = event.step;
  if (event.cycle != -1) event.numbers[kSeq] = event.cycle;
  if (event.texts[kId].empty()) event.texts[kId] = event.id2;
  if (event.args == "null") event.args = {};
  if (event.args.size() > most_args_bytes_ - columns.args.size()) return false;
  if (event.lasted_ns == kMissing) event.lasted_ns = event.thread_lasted_ns;
  columns.phase.push_back(event.phase);
  columns.name.push_back(texts_.code(event.texts[kName]));
  columns.category.push_back(texts_.code(event.texts[kCategory]));
  columns.pid.push_back(texts_.code(event.texts[kPid]));
  columns.tid.push_back(texts_.code(event.texts[kTid]));
  columns.id.push_back(texts_.code(event.texts[kId]));
  columns.at_ns.push_back(event.at_ns);
  columns.lasted_ns.push_back(event.lasted_ns);
  for (std::size_t k = 0; k < kNumbers; ++k) columns.numbers[k].push_back(event.numbers[k]);
  columns.args.insert(columns.args.end(), event.args.begin(), event.args.end());
  columns.args_ends.push_back(static_cast<std::int32_t>(columns.args.size()));
  return true;
}

}  // namespace hvdtune::scan
