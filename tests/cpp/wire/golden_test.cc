// The bytes of every message, held to a file: ranks of two builds with one kWireVersion must
// understand each other. A change of format raises the version; HVDTUNE_WRITE_GOLDEN=1 then makes
// its file.
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "check.h"
#include "wire/samples.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

std::string golden_path() {
  const std::string here = __FILE__;
  const std::string version = std::to_string(kWireVersion);
  return here.substr(0, here.find("tests/cpp/")) + "tests/golden/wire/v" + version + ".bin";
}

std::vector<uint8_t> bytes_of_all() {
  std::vector<uint8_t> all;
  const auto add = [&all](const std::vector<uint8_t>& message) {
    for (int shift = 0; shift < 32; shift += 8) {
      all.push_back(static_cast<uint8_t>(message.size() >> shift));
    }
    all.insert(all.end(), message.begin(), message.end());
  };
  add(encode(sample_announce()));
  add(encode(sample_cycle()));
  add(encode(StepReport{5, -1, 77, {1, 2, 3}}));
  add(encode(Notice{-3, "text"}));
  add(encode(Proposal{9, Setting{}}));
  add(encode(sample_timeline_order()));
  add(encode(ProcessIdentity{1234, 5678, 9012}));
  add(encode(Pulse{1, 2, 3, true, 4}));
  add(encode(sample_report()));
  add(encode(ProbeRequest{4, {1234, 5678, 9012}}));
  add(encode(ProbeResult{5, ProcessState::kStopped}));
  return all;
}

}  // namespace

TEST(messages_have_the_bytes_of_the_golden_file) {
  const std::vector<uint8_t> all = bytes_of_all();
  if (std::getenv("HVDTUNE_WRITE_GOLDEN") != nullptr) {
    std::ofstream(golden_path(), std::ios::binary)
        .write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
  }
  std::ifstream file(golden_path(), std::ios::binary);
  const std::vector<uint8_t> golden{std::istreambuf_iterator<char>(file), {}};
  CHECK(all == golden);
}
