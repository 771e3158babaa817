#include "wire/frame.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "check.h"

using namespace hvdtune;

namespace {

constexpr Key kKey = {1, 2, 3};
constexpr Key kOther = {1, 2, 4};

Bytes bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// What the decoder makes of one frame fed whole.
std::optional<Frame> decode(FrameDecoder& decoder, Bytes bytes) {
  decoder.feed(bytes);
  return decoder.next();
}

}  // namespace

TEST(frames_arrive_in_order_whatever_the_pieces) {
  for (const size_t piece : {1, 7, 64, 100'000}) {
    FrameEncoder encoder(kKey, 3);
    FrameDecoder decoder(kKey, 3);
    std::vector<uint8_t> stream;
    for (const std::string_view text : {"", "one", "a longer payload"}) {
      const std::vector<uint8_t> frame = encoder.encode(FrameKind::kStep, bytes_of(text));
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    std::vector<Frame> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(Bytes(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (auto frame = decoder.next()) got.push_back(std::move(*frame));
    }
    CHECK_EQ(got.size(), 3U);
    CHECK(got[0].payload.empty());
    CHECK(got[2].kind == FrameKind::kStep);
    CHECK_EQ(got[2].payload.size(), 16U);
  }
}

TEST(a_changed_bit_anywhere_is_refused) {
  FrameEncoder encoder(kKey, 3);
  const std::vector<uint8_t> frame = encoder.encode(FrameKind::kPing, bytes_of("payload"));
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::vector<uint8_t> changed = frame;
    changed[bit / 8] ^= static_cast<uint8_t>(1U << bit % 8);
    FrameDecoder decoder(kKey, 3);
    bool refused = false;
    try {
      // A longer length waits for bytes that never come, and that is no frame either.
      refused = !decode(decoder, changed);
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::kInternal && error.rank() == 3;
    }
    CHECK(refused);
  }
}

TEST(a_frame_under_another_key_is_refused) {
  FrameEncoder encoder(kOther, 3);
  FrameDecoder decoder(kKey, 3);
  CHECK_THROWS(ErrorCode::kInternal, decode(decoder, encoder.encode(FrameKind::kPing, {})));
}

TEST(a_frame_sent_twice_is_refused) {
  FrameEncoder encoder(kKey, 3);
  FrameDecoder decoder(kKey, 3);
  const std::vector<uint8_t> frame = encoder.encode(FrameKind::kPing, {});
  CHECK(decode(decoder, frame).has_value());
  CHECK_THROWS(ErrorCode::kInternal, decode(decoder, frame));
}

TEST(a_frame_left_out_is_noticed) {
  FrameEncoder encoder(kKey, 3);
  FrameDecoder decoder(kKey, 3);
  encoder.encode(FrameKind::kPing, {});
  CHECK_THROWS(ErrorCode::kInternal, decode(decoder, encoder.encode(FrameKind::kPing, {})));
}

// Both directions share the session key: the sender's rank tells them apart.
TEST(a_frame_reflected_to_its_sender_is_refused) {
  FrameEncoder mine(kKey, 0);
  FrameDecoder from_peer(kKey, 1);
  CHECK_THROWS(ErrorCode::kInternal, decode(from_peer, mine.encode(FrameKind::kPing, {})));
}

TEST(a_message_longer_than_a_frame_travels_in_several) {
  for (const size_t piece : {1, 40, 100'000}) {
    FrameEncoder encoder(kKey, 3, 4);
    FrameDecoder decoder(kKey, 3);
    std::vector<uint8_t> stream;
    for (const std::string_view text : {"exactly8", "", "not a multiple", "four"}) {
      const std::vector<uint8_t> frames = encoder.encode(FrameKind::kCycle, bytes_of(text));
      stream.insert(stream.end(), frames.begin(), frames.end());
    }
    std::vector<std::string> got;
    for (size_t at = 0; at < stream.size(); at += piece) {
      decoder.feed(Bytes(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (const auto message = decoder.next()) {
        CHECK(message->kind == FrameKind::kCycle);
        got.emplace_back(message->payload.begin(), message->payload.end());
      }
    }
    CHECK(got == (std::vector<std::string>{"exactly8", "", "not a multiple", "four"}));
  }
}

TEST(a_message_that_another_one_interrupts_is_refused) {
  FrameEncoder encoder(kKey, 3, 4);
  const std::vector<uint8_t> both = encoder.encode(FrameKind::kCycle, bytes_of("12345678"));
  const size_t one = kFrameHeaderBytes + 4 + kFrameMacBytes;
  // The first half, and a frame of another kind with the number of the second.
  FrameEncoder other(kKey, 3);
  other.encode(FrameKind::kPing, {});
  FrameDecoder decoder(kKey, 3);
  CHECK(!decode(decoder, Bytes(both).first(one)));
  CHECK_THROWS(ErrorCode::kInternal, decode(decoder, other.encode(FrameKind::kPing, {})));
}

TEST(a_length_over_the_cap_is_refused_at_the_header) {
  FrameEncoder encoder(kKey, 3);
  std::vector<uint8_t> frame = encoder.encode(FrameKind::kPing, {});
  frame[3] = 0x7f;
  FrameDecoder decoder(kKey, 3);
  CHECK_THROWS(ErrorCode::kInternal, decode(decoder, Bytes(frame).first(kFrameHeaderBytes)));
  // Refused by its length: there are not so many bytes.
  CHECK_THROWS(ErrorCode::kUsage,
               encoder.encode(FrameKind::kPing, Bytes(kKey.data(), kMessageCap + 1)));
}
