#include "faults.h"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "violations.h"

namespace fake_gpu {
namespace {

constexpr std::string_view kKinds[] = {"late-peer",   "never-ready",   "async-error", "slow-abort",
                                       "hung-abort",  "refuse-init",   "kill",        "slow-launch",
                                       "late-launch", "out-of-memory", "stop-query",  "stop-wait"};

constexpr std::string_view kKeys[] = {"rank",       "op",     "ms",     "code",
                                      "allocation", "device", "stream", "times"};

struct Planned {
  Fault fault;
  int64_t times_left;
};

struct Plan {
  std::mutex mutex;
  std::vector<Planned> planned;
  std::map<std::string, uint64_t, std::less<>> hit;
  std::atomic<uint64_t> releases{0};
};

std::vector<Planned> parsed(std::string_view text);

Plan& plan() {
  static Plan* const only = [] {
    auto* fresh = new Plan;
    const char* text = std::getenv("FAKE_GPU_FAULTS");
    try {
      if (text != nullptr) fresh->planned = parsed(text);
    } catch (const std::invalid_argument& error) {
      note("FAKE_GPU_FAULTS is refused: " + std::string(error.what()));
      std::abort();
    }
    return fresh;
  }();
  return *only;
}

Planned parsed_fault(const std::string& text) {
  std::istringstream words(text);
  Planned result{{}, INT64_MAX};
  words >> result.fault.kind;
  bool known = false;
  for (const auto kind : kKinds) known = known || kind == result.fault.kind;
  if (!known) throw std::invalid_argument("there is no fault '" + result.fault.kind + "'");
  for (std::string word; words >> word;) {
    const size_t middle = word.find('=');
    int64_t value = 0;
    const char* end = word.data() + word.size();
    if (middle == std::string::npos ||
        std::from_chars(word.data() + middle + 1, end, value).ptr != end) {
      throw std::invalid_argument("'" + word + "' is no KEY=NUMBER");
    }
    const std::string key = word.substr(0, middle);
    if (std::ranges::find(kKeys, key) == std::end(kKeys)) {
      throw std::invalid_argument("no fault has the key '" + key + "'");
    }
    (key == "times" ? result.times_left : result.fault.values[key]) = value;
  }
  return result;
}

std::vector<Planned> parsed(std::string_view text) {
  std::vector<Planned> result;
  std::istringstream parts{std::string(text)};
  for (std::string part; std::getline(parts, part, ';');) {
    if (part.find_first_not_of(' ') != std::string::npos) result.push_back(parsed_fault(part));
  }
  return result;
}

}  // namespace

int64_t Fault::value(std::string_view key, int64_t otherwise) const {
  const auto found = values.find(key);
  return found == values.end() ? otherwise : found->second;
}

void set_faults(std::string_view text) {
  auto fresh = parsed(text);
  Plan& all = plan();
  const std::lock_guard lock(all.mutex);
  all.planned = std::move(fresh);
}

std::optional<Fault> strike(std::string_view kind,
                            std::initializer_list<std::pair<std::string_view, int64_t>> place) {
  Plan& all = plan();
  const std::lock_guard lock(all.mutex);
  for (auto& planned : all.planned) {
    if (planned.fault.kind != kind || planned.times_left <= 0) continue;
    bool matches = true;
    for (const auto& [key, value] : place) {
      matches = matches && planned.fault.value(key, value) == value;
    }
    if (!matches) continue;
    --planned.times_left;
    ++all.hit[planned.fault.kind];
    return planned.fault;
  }
  return std::nullopt;
}

void stop_process(std::string_view kind,
                  std::initializer_list<std::pair<std::string_view, int64_t>> place) {
  if (strike(kind, place)) ::raise(SIGSTOP);
}

uint64_t faults_hit(std::string_view kind) {
  Plan& all = plan();
  const std::lock_guard lock(all.mutex);
  const auto found = all.hit.find(kind);
  return found == all.hit.end() ? 0 : found->second;
}

void forget_faults() {
  Plan& all = plan();
  const std::lock_guard lock(all.mutex);
  all.planned.clear();
  all.hit.clear();
}

uint64_t release_generation() { return plan().releases.load(); }

void release() { ++plan().releases; }

bool sleep_for_fault(int64_t milliseconds, bool (*given_up)(void*), void* argument) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::milliseconds(milliseconds);
  const uint64_t generation = release_generation();
  while (milliseconds < 0 || steady_clock::now() < end) {
    if (release_generation() != generation) return false;
    if (given_up != nullptr && given_up(argument)) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace fake_gpu
