// Everything that reads a message of another process, given any bytes: it reads or refuses them.
#include "script.h"
#include "transport/store_stream.h"
#include "wire/feed_decoders.h"

namespace {

// What reads must encode to a message that reads the same.
bool survives_start_up(hvdtune::Bytes bytes) {
  using hvdtune::StoreMessage;
  const StoreMessage message{{}, {bytes.begin(), bytes.end()}};
  using hvdtune::testing::is_read_or_refused;
  return is_read_or_refused([&] {
           const auto said = message.as_registration();
           StoreMessage::registration(said.size, said.member).as_registration();
         }) &&
         is_read_or_refused([&] { StoreMessage::table(message.as_table()).as_table(); }) &&
         is_read_or_refused([&] { StoreMessage::failed(message.as_text()).as_text(); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hvdtune::Bytes bytes(data, size);
  hvdtune::fuzz::require(hvdtune::testing::survives_decoders(bytes),
                         "messages are refused in order");
  hvdtune::fuzz::require(survives_start_up(bytes), "start-up messages are refused in order");
  return 0;
}
