// Runs the tests of an executable whose file's name ends as the first argument says; all without
// one.
#include <cstdio>
#include <exception>
#include <string_view>

#include "check.h"

int main(int count, char** words) {
  const std::string_view wanted = count > 1 ? words[1] : "";
  int passed = 0;
  for (const auto& test : hvdtune::testing::tests()) {
    if (!std::string_view(test.file).ends_with(wanted)) continue;
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    try {
      test.body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s threw: %s\n", test.name, error.what());
      return 1;
    }
    ++passed;
  }
  std::printf("%d passed\n", passed);
  return passed > 0 ? 0 : 1;
}
