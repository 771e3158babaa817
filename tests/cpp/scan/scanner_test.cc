#include "scan/scanner.h"

#include <memory>
#include <string>
#include <vector>

#include "check.h"
#include "scan/texts.h"

using namespace hvdtune::scan;

namespace {

// In memory that ends where the text and its NUL do, so that a look behind them is seen.
struct Scanned {
  Scanner scanner;
  Columns whole, halves;
  size_t stop = 0;

  explicit Scanned(const std::string& text, size_t at = 0) {
    const std::unique_ptr<char[]> exact(new char[text.size() + 1]);
    text.copy(exact.get(), text.size());
    exact[text.size()] = '\0';
    stop = scanner.run({exact.get(), text.size()}, at, whole, halves);
  }
  std::string text(int32_t code) const { return scanner.texts()[static_cast<size_t>(code)]; }
};

}  // namespace

TEST(columns_have_what_events_say) {
  const Scanned scanned(
      R"({"ph": "X", "name": "a\u00e9", "cat": "c", "pid": 3, "tid": "t", "ts": 1.5, "dur": 2,)"
      R"( "args": {"seq": 7, "bytes": 4096, "x": [1, {"y": 2}]}} , {"ph":"B","ts":-0.0005})");
  CHECK_EQ(scanned.whole.phase.size(), 1u);
  CHECK_EQ(scanned.text(scanned.whole.name[0]), "a\xc3\xa9");
  CHECK_EQ(scanned.text(scanned.whole.category[0]), "c");
  CHECK_EQ(scanned.text(scanned.whole.pid[0]), "3");
  CHECK_EQ(scanned.text(scanned.whole.tid[0]), "t");
  CHECK_EQ(scanned.whole.at_ns[0], 1500);
  CHECK_EQ(scanned.whole.lasted_ns[0], 2000);
  CHECK_EQ(scanned.whole.numbers[0][0], 7);
  CHECK_EQ(scanned.whole.numbers[1][0], -1);
  CHECK_EQ(scanned.whole.numbers[2][0], 4096);
  CHECK_EQ(scanned.halves.phase.size(), 1u);
  CHECK_EQ(scanned.halves.at_ns[0], -1);
  CHECK_EQ(scanned.halves.lasted_ns[0], kMissing);
}

TEST(it_stops_before_what_it_does_not_understand) {
  const std::string good = R"({"ph":"X","ts":1})";
  for (const std::string bad :
       {R"({"ph":"X","ts":01})", R"({"ph":"XY","ts":1})", R"({"ph":"X","ts":1e3})",
        R"({"ph":"X","name":"\ud800"})", R"({"ph":"X","n":tru})", R"({"ts":1})", R"({"ph":"X")",
        R"({"ph":"X",})", R"({"ph":"X","args":{"seq":99999999999999999999}})", "{", "", "[]"}) {
    const Scanned scanned(good + "," + bad);
    CHECK_EQ(scanned.stop, good.size());
    CHECK_EQ(scanned.whole.phase.size(), 1u);
  }
}

TEST(an_event_that_is_cut_anywhere_is_not_taken_in) {
  const std::string text =
      R"({"ph":"X","name":"a\n\u00e9","ts":12.25,"args":{"seq":-7,"x":[1e-3,null,"y"]}})";
  for (size_t length = 1; length < text.size(); ++length) {
    const Scanned scanned(text.substr(0, length));
    CHECK_EQ(scanned.stop, 0u);
    CHECK(scanned.whole.phase.empty());
  }
  CHECK_EQ(Scanned(text).stop, text.size());
}

TEST(a_nul_in_the_text_is_not_its_end) {
  const std::string text = R"({"ph":"X","name":"a?b","ts":1})";
  for (size_t at = 0; at < text.size(); ++at) {
    std::string broken = text;
    broken[at] = '\0';
    CHECK_EQ(Scanned(broken).stop, 0u);
  }
}

TEST(texts_have_one_number_however_alike_they_are) {
  Texts texts;
  std::vector<std::string> all{""};
  for (size_t size = 1; size < 40; ++size) {
    for (size_t at = 0; at < size; ++at) {
      all.push_back(std::string(size, 'a'));
      all.back()[at] = 'b';
    }
  }
  for (int round = 0; round < 2; ++round) {
    for (size_t k = 0; k < all.size(); ++k) CHECK_EQ(texts.code(all[k]), static_cast<int32_t>(k));
  }
  CHECK_EQ(texts.all().size(), all.size());
}

TEST(values_may_be_nested_so_deeply_and_no_deeper) {
  const auto nested = [](size_t depth) {
    return R"({"ph":"X","x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  CHECK(Scanned(nested(3)).stop > 0);
  CHECK_EQ(Scanned(nested(1'000'000)).stop, 0u);
}

TEST(a_run_stops_where_the_arguments_would_be_too_many) {
  const std::string text = R"({"ph":"X","ts":1,"args":{"a":1}},{"ph":"X","ts":2,"args":{"b":2}},)"
                           R"({"ph":"X","ts":3,"args":{"c": "too long to be taken"}})";
  Scanner scanner(10);
  std::vector<int64_t> times;
  size_t at = 0;
  while (at < text.size()) {
    Columns whole, halves;
    const size_t stop = scanner.run(text, at, whole, halves);
    if (stop == at) break;  // for the careful reader
    CHECK_EQ(whole.at_ns.size(), 1u);
    times.push_back(whole.at_ns[0]);
    at = stop + 1;
  }
  CHECK(times == std::vector<int64_t>({1000, 2000}));
  CHECK_EQ(text.substr(at, 9), R"({"ph":"X")");
}
