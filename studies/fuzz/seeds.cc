// Writes what the fuzzers start from, made by the real encoders: seeds FOLDER.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "script.h"
#include "transport/store_stream.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/samples.h"

using namespace hvdtune;
using fuzz::ScriptWriter;

namespace {

using Inputs = std::vector<std::vector<uint8_t>>;

Inputs messages() {
  const RankInfo member{"alpha", "127.0.0.1", 4711, 42, true};
  return {encode(testing::sample_announce()),
          encode(testing::sample_cycle()),
          encode(Announce{}),
          encode(Cycle{}),
          encode(Notice{1, "why"}),
          encode(StepReport{1, 2, 3, {4, 5}}),
          encode(Proposal{}),
          StoreMessage::registration(2, member).payload,
          StoreMessage::table(std::vector{member, member}).payload,
          StoreMessage::failed("no").payload};
}

Inputs frames() {
  Inputs inputs;
  for (const std::vector<uint8_t>& payload : messages()) {
    ScriptWriter writer;
    writer.byte(2).byte(1).piece(payload).byte(2).piece({});
    inputs.push_back(ScriptWriter(writer).byte(0).byte(16).bytes());
    inputs.push_back(writer.byte(1).number(payload.size() / 2).byte(1).byte(0).byte(7).bytes());
  }
  return inputs;
}

// The acts of handshake_fuzz.cc: as a peer with the key would, then with one word changed.
Inputs handshakes() {
  Inputs inputs;
  for (const uint8_t dialer : {0, 1}) {
    const auto act = [&](ScriptWriter& writer, uint8_t what) -> ScriptWriter& {
      return dialer ? writer.byte(what) : writer.byte(0).byte(what);
    };
    for (const uint8_t wrong : {0, 1, 2, 3, 4, 5, 7}) {
      ScriptWriter writer;
      writer.byte(dialer);
      act(writer, 0);
      act(act(writer, 6), wrong).byte(9).byte(1);
      for (int i = 0; i < 4; ++i) act(writer, 6);
      inputs.push_back(writer.bytes());
    }
  }
  return inputs;
}

// The first byte says where scan_fuzz.cc has the scanner begin.
Inputs traces() {
  Inputs inputs;
  for (
      const std::string& text : {
          R"({"ph":"X","name":"a\u00e9\n","ts":1.5,"dur":2,"pid":0,"tid":"t","cat":"c"},)",
          R"({"ph":"X","ts":-0.0005,"tdur":1,"args":{"seq":7,"bucket":1,"bytes":4096,"x":[1e3]}})",
          R"({"ph":"b","id2":{"local":"0x1"},"cycle":4,"ts":12345678901234.5678}  , {"ph":"e"})",
          R"({"ph":"M","name":"process_name","args":{"name":"rank 0","step":99999999999999999999}},)"
          R"({"ph":"i","s":"t","ts":3,"args":null,"id":12,"pid":"p","tid":3})",
      }) {
    std::vector<uint8_t>& input = inputs.emplace_back(1, uint8_t{0});
    input.insert(input.end(), text.begin(), text.end());
  }
  return inputs;
}

void write(const std::filesystem::path& folder, const Inputs& inputs) {
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::ofstream file(folder / ("seed-" + std::to_string(i)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(inputs[i].data()),
               static_cast<std::streamsize>(inputs[i].size()));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  write(folder / "frame", frames());
  write(folder / "message", messages());
  write(folder / "handshake", handshakes());
  write(folder / "scan", traces());
}
