// What a rank and the rendezvous server say to each other until the job is formed.
//
//   rank -> server   kRegister   size u32, member
//   server -> rank   kTable      count u32, members by rank
//   rank -> server   kConnected  -
//   server -> rank   kGo         -
//   either way       kFailed     text: the job cannot be formed
//
//   frame   bytes u32 (of type and payload, at most 4 MiB), type u8, payload, MAC [32]
//   member  host text, address text, port u16, pid u32, shared memory u8, channels u8
//   text    bytes u16, characters
//
// Little endian. The MAC covers the number of the frame in its direction and all before it, under
// a key of its own for each direction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/hmac.h"
#include "transport/handshake.h"
#include "transport/rendezvous.h"

namespace hvdtune {

enum class StoreMessageType : uint8_t { kRegister = 1, kTable, kConnected, kGo, kFailed };

struct StoreMessage {
  StoreMessageType type;
  std::vector<uint8_t> payload;

  static StoreMessage registration(int size, const RankInfo& member);
  static StoreMessage table(std::span<const RankInfo> members);
  static StoreMessage connected() { return {StoreMessageType::kConnected, {}}; }
  static StoreMessage go() { return {StoreMessageType::kGo, {}}; }
  static StoreMessage failed(std::string_view text);

  // REQUIRES: the type. Throw Error(kInternal) for a payload that is not of the grammar.
  struct Registration {
    int size;
    RankInfo member;
  };
  Registration as_registration() const;
  std::vector<RankInfo> as_table() const;
  std::string as_text() const;
};

// Messages over a channel, without waiting. Reads no byte beyond the messages it returns, so the
// channel can be used otherwise afterwards.
class StoreStream {
 public:
  StoreStream(SecureChannel channel, bool server);

  void queue(const StoreMessage& message);
  // True once nothing is left to send. Throws as Socket does.
  bool flush();
  // Throws as Socket does, and Error(kInternal) for a frame that is too long or forged.
  std::optional<StoreMessage> try_receive();

  int fd() const { return channel_.socket.fd(); }
  short events() const;
  int peer() const { return channel_.peer; }
  SecureChannel take() { return std::move(channel_); }

 private:
  [[noreturn]] void fail(const char* what) const;

  SecureChannel channel_;
  Hmac sign_out_;
  Hmac sign_in_;
  uint64_t next_out_ = 0;
  uint64_t next_in_ = 0;
  std::vector<uint8_t> out_;
  size_t sent_ = 0;
  std::vector<uint8_t> in_;
  size_t received_ = 0;
};

}  // namespace hvdtune
