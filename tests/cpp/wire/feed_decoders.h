// One input of a fuzzer, given to everything that reads bytes from another process.
#pragma once

#include <cstdlib>

#include "base/hmac.h"
#include "base/status.h"
#include "wire/frame.h"
#include "wire/message.h"
#include "wire/report.h"

namespace hvdtune::testing {

// True when `read` either succeeds or says that the bytes are malformed; anything else, a crash
// included, is the fuzzer's find.
template <typename Read>
bool is_read_or_refused(Read read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    return error.code() == ErrorCode::kInternal;
  }
}

// What decodes must encode to the bytes it came from, or to bytes that decode again.
inline bool survives_decoders(Bytes bytes) {
  const auto announce = [&] { decode_announce(encode(decode_announce(bytes))); };
  const auto cycle = [&] { decode_cycle(encode(decode_cycle(bytes))); };
  const auto frames = [&] {
    FrameDecoder decoder(Key{}, 1);
    const size_t half = bytes.size() / 2;
    decoder.feed(bytes.first(half));
    while (decoder.next()) continue;
    decoder.feed(bytes.subspan(half));
    while (decoder.next()) continue;
  };
  return is_read_or_refused(announce) && is_read_or_refused(cycle) && is_read_or_refused(frames) &&
         is_read_or_refused([&] { decode_step_report(bytes); }) &&
         is_read_or_refused([&] { decode_notice(bytes); }) &&
         is_read_or_refused([&] { decode_proposal(bytes); }) &&
         is_read_or_refused([&] { decode_timeline_order(bytes); }) &&
         is_read_or_refused([&] { decode_identity(bytes); }) &&
         is_read_or_refused([&] { decode_pulse(bytes); }) &&
         is_read_or_refused([&] { decode_probe_request(bytes); }) &&
         is_read_or_refused([&] { decode_probe_result(bytes); }) &&
         is_read_or_refused([&] { decode_report(encode(decode_report(bytes))); });
}

}  // namespace hvdtune::testing
