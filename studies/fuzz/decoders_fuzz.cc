// libFuzzer entry for the decoders:
//
//   clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Icsrc -Itests/cpp
//     studies/fuzz/decoders_fuzz.cc csrc/wire/*.cc csrc/base/*.cc -o decoders_fuzz
//   ./decoders_fuzz -max_total_time=60
//
// tests/cpp/wire/mutation_test.cc gives the same target a fixed set of inputs.
#include "wire/feed_decoders.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!hvdtune::testing::survives_decoders({data, size})) std::abort();
  return 0;
}
