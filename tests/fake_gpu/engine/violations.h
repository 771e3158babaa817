// What a program did that the real libraries only break on, sometimes: a counter for each kind and
// one sentence on stderr.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fake_gpu {

// Counts it, prints the sentence, and appends it to the file that FAKE_GPU_REPORT names.
void violate(std::string_view kind, const std::string& sentence);

// One line on stderr that is no violation.
void note(const std::string& sentence);

uint64_t violations_of(std::string_view kind);
const char* last_violation();
void forget_violations();

}  // namespace fake_gpu
