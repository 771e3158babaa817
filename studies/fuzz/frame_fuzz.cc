// Frames whose bytes are changed on their way: what was sent before the change arrives as it was,
// and nothing after it.
//
//   input := u8 frames % 4, (u8 kind, piece payload)*, edit*, u8 bytes per feed
//   edit  := u8 what % 4 (0 ends the edits), u16 where, u8 argument
#include <optional>
#include <vector>

#include "base/status.h"
#include "script.h"
#include "wire/frame.h"

namespace hvdtune::fuzz {
namespace {

using Stream = std::vector<uint8_t>;

struct Sent {
  Frame frame;
  size_t end;  // in the stream
};

bool edit(Stream& stream, Script& script) {
  const uint8_t what = script.byte() % 4;
  if (what == 0) return false;
  const size_t at = stream.empty() ? 0 : script.number() % stream.size();
  const uint8_t argument = script.byte();
  const auto where = stream.begin() + static_cast<ptrdiff_t>(at);
  if (what == 1 && !stream.empty()) *where ^= argument;
  if (what == 2) stream.insert(where, argument, argument);
  if (what == 3) stream.resize(at);
  return true;
}

size_t common_prefix(const Stream& a, const Stream& b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

size_t count_received(const Stream& stream, size_t step, const std::vector<Sent>& sent) {
  FrameDecoder decoder(Key{7}, 3);
  size_t received = 0;
  try {
    for (size_t at = 0; at < stream.size(); at += step) {
      decoder.feed(Bytes(stream).subspan(at, std::min(step, stream.size() - at)));
      while (const std::optional<Frame> frame = decoder.next()) {
        require(received < sent.size(), "no frame arrives that was not sent");
        const Frame& expected = sent[received++].frame;
        require(frame->kind == expected.kind && frame->payload == expected.payload,
                "a frame arrives as it was sent");
      }
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::kInternal && error.rank() == 3, "the peer is named");
  }
  return received;
}

void run(Script script) {
  FrameEncoder encoder(Key{7}, 3);
  Stream original;
  std::vector<Sent> sent;
  for (int left = script.byte() % 4; left > 0; --left) {
    const auto kind = static_cast<FrameKind>(script.byte() % kFrameKindCount);
    const Bytes payload = script.piece();
    const Stream bytes = encoder.encode(kind, payload);
    original.insert(original.end(), bytes.begin(), bytes.end());
    sent.push_back({{kind, {payload.begin(), payload.end()}}, original.size()});
  }
  Stream stream = original;
  while (edit(stream, script)) continue;
  const size_t step = size_t{script.byte()} + 1;
  const size_t whole = common_prefix(original, stream);
  const auto expected = std::ranges::count_if(sent, [&](const Sent& s) { return s.end <= whole; });
  require(count_received(stream, step, sent) == static_cast<size_t>(expected),
          "what was sent before the first change arrives");
}

}  // namespace
}  // namespace hvdtune::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvdtune::fuzz::run({data, size});
  return 0;
}
