// The smallest test frame that serves: a file is run in a process of its own, a TEST is one
// behaviour.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "base/status.h"

namespace hvdtune::testing {

struct Test {
  const char* file;
  const char* name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> list;
  return list;
}

struct Register {
  Register(const char* file, const char* name, void (*body)()) {
    tests().push_back({file, name, body});
  }
};

[[noreturn]] inline void fail(const char* file, int line, const char* text) {
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
  std::fflush(stderr);
  std::_Exit(1);
}

// How many random cases, of as many as are usual; with HVDTUNE_TEST_CASES=N N times as many.
// ThreadSanitizer, which watches the order of accesses, not their values, gets an eighth, and two
// at least.
inline int cases(int usual) {
#ifdef __SANITIZE_THREAD__
  usual = std::max(std::min(usual, 2), usual / 8);
#endif
  const char* text = std::getenv("HVDTUNE_TEST_CASES");
  return text == nullptr ? usual : usual * std::atoi(text);
}

// How many elements tensors have, of as many as are usual. Under ThreadSanitizer, which maps and
// unmaps memory for every large one, an eighth, except with HVDTUNE_TEST_CASES.
inline size_t elements(size_t usual) {
#ifdef __SANITIZE_THREAD__
  if (std::getenv("HVDTUNE_TEST_CASES") == nullptr) {
    return std::max(std::min(usual, size_t{5}), usual / 8);
  }
#endif
  return usual;
}

}  // namespace hvdtune::testing

#define TEST(name)                                                                 \
  static void name();                                                              \
  static const hvdtune::testing::Register register_##name(__FILE__, #name, &name); \
  static void name()

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) hvdtune::testing::fail(__FILE__, __LINE__, #condition); \
  } while (0)

#define CHECK_EQ(left, right)                                          \
  do {                                                                 \
    const auto left_value = (left);                                    \
    const auto right_value = (right);                                  \
    if (!(left_value == right_value)) {                                \
      std::cerr << left_value << " != " << right_value << std::endl;   \
      hvdtune::testing::fail(__FILE__, __LINE__, #left " == " #right); \
    }                                                                  \
  } while (0)

#define CHECK_THROWS(expected_code, statement)                                              \
  do {                                                                                      \
    bool thrown = false;                                                                    \
    try {                                                                                   \
      statement;                                                                            \
    } catch (const hvdtune::Error& error) {                                                 \
      thrown = error.code() == (expected_code);                                             \
    }                                                                                       \
    if (!thrown)                                                                            \
      hvdtune::testing::fail(__FILE__, __LINE__, "no " #expected_code " from " #statement); \
  } while (0)
