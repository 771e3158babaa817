// The faults that a test asked for, by FAKE_GPU_FAULTS or fakeGpuSetFaults.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fake_gpu {

struct Fault {
  std::string kind;
  std::map<std::string, int64_t, std::less<>> values;
  int64_t value(std::string_view key, int64_t otherwise) const;
};

// Throws std::invalid_argument with a sentence.
void set_faults(std::string_view text);

// The fault of that kind that matches: each key that it has in common with `place` is equal. It is
// counted as struck. Faults with times=N strike N times only.
std::optional<Fault> strike(std::string_view kind,
                            std::initializer_list<std::pair<std::string_view, int64_t>> place);

// The process gets SIGSTOP, in this call, if there is such a fault.
void stop_process(std::string_view kind,
                  std::initializer_list<std::pair<std::string_view, int64_t>> place);

uint64_t faults_hit(std::string_view kind);
void forget_faults();

// Changes with every fakeGpuRelease: what hangs for ever goes on.
uint64_t release_generation();
void release();

// Sleeps that long; for ever with a negative number, until the next release or until
// `given_up` says so. False if it was cut short.
bool sleep_for_fault(int64_t milliseconds, bool (*given_up)(void*), void* argument);

}  // namespace fake_gpu
