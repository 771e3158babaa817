#include "transport/store_stream.h"

#include <poll.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "base/status.h"
#include "transport/bytes.h"

namespace hvdtune {
namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kMostBytes = size_t{4} << 20;
constexpr size_t kMostText = 4096;

class FieldWriter {
 public:
  template <std::integral T>
  FieldWriter& number(T value) {
    bytes_.resize(bytes_.size() + sizeof(T));
    store_le(value, bytes_.data() + bytes_.size() - sizeof(T));
    return *this;
  }

  FieldWriter& text(std::string_view value) {
    value = value.substr(0, kMostText);
    number(static_cast<uint16_t>(value.size()));
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }

  FieldWriter& member(const RankInfo& member) {
    return text(member.host)
        .text(member.address)
        .number(member.port)
        .number(static_cast<uint32_t>(member.pid))
        .number(static_cast<uint8_t>(member.shared_memory))
        .number(static_cast<uint8_t>(member.channels));
  }

  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  std::vector<uint8_t> bytes_;
};

class FieldReader {
 public:
  explicit FieldReader(Bytes bytes) : rest_(bytes) {}

  template <std::integral T>
  T number() {
    return load_le<T>(next(sizeof(T)).data());
  }

  std::string text() {
    const Bytes bytes = next(number<uint16_t>());
    return {bytes.begin(), bytes.end()};
  }

  RankInfo member() {
    RankInfo member;
    member.host = text();
    member.address = text();
    member.port = number<uint16_t>();
    member.pid = static_cast<int>(number<uint32_t>());
    member.shared_memory = number<uint8_t>() != 0;
    member.channels = number<uint8_t>();
    return member;
  }

  void expect_end() const {
    if (!rest_.empty()) malformed();
  }

 private:
  [[noreturn]] static void malformed() {
    throw Error(ErrorCode::kInternal, "a start-up message is malformed");
  }

  Bytes next(size_t bytes) {
    if (bytes > rest_.size()) malformed();
    const Bytes result = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return result;
  }

  Bytes rest_;
};

Hmac signer(const Key& session, bool to_server) {
  const std::string_view label = to_server ? "hvdtune store <-" : "hvdtune store ->";
  return Hmac(hmac_sha256(session, {reinterpret_cast<const uint8_t*>(label.data()), label.size()}));
}

Digest mac_of(const Hmac& signer, uint64_t number, Bytes frame) {
  std::array<uint8_t, 8> prefix;
  store_le(number, prefix.data());
  return signer.sign(prefix, frame);
}

}  // namespace

StoreMessage StoreMessage::registration(int size, const RankInfo& member) {
  return {StoreMessageType::kRegister,
          FieldWriter().number(static_cast<uint32_t>(size)).member(member).take()};
}

StoreMessage StoreMessage::table(std::span<const RankInfo> members) {
  FieldWriter writer;
  writer.number(static_cast<uint32_t>(members.size()));
  for (const RankInfo& member : members) writer.member(member);
  return {StoreMessageType::kTable, writer.take()};
}

StoreMessage StoreMessage::failed(std::string_view text) {
  return {StoreMessageType::kFailed, FieldWriter().text(text).take()};
}

StoreMessage::Registration StoreMessage::as_registration() const {
  FieldReader reader(payload);
  Registration result;
  result.size = static_cast<int>(reader.number<uint32_t>());
  result.member = reader.member();
  reader.expect_end();
  return result;
}

std::vector<RankInfo> StoreMessage::as_table() const {
  FieldReader reader(payload);
  std::vector<RankInfo> members;
  // Grows as members are read: the count alone is not believed.
  for (uint32_t left = reader.number<uint32_t>(); left > 0; --left) {
    members.push_back(reader.member());
  }
  reader.expect_end();
  return members;
}

std::string StoreMessage::as_text() const {
  FieldReader reader(payload);
  std::string text = reader.text();
  reader.expect_end();
  return text;
}

StoreStream::StoreStream(SecureChannel channel, bool server)
    : channel_(std::move(channel)),
      sign_out_(signer(channel_.session, !server)),
      sign_in_(signer(channel_.session, server)),
      in_(kLengthBytes) {}

void StoreStream::queue(const StoreMessage& message) {
  if (message.payload.size() + 1 > kMostBytes) {
    throw Error(ErrorCode::kInternal, "a start-up message of " +
                                          std::to_string(message.payload.size()) +
                                          " bytes exceeds the maximum of 4 MiB");
  }
  std::vector<uint8_t> frame(kLengthBytes);
  store_le(static_cast<uint32_t>(message.payload.size() + 1), frame.data());
  frame.push_back(static_cast<uint8_t>(message.type));
  frame.insert(frame.end(), message.payload.begin(), message.payload.end());
  const Digest mac = mac_of(sign_out_, next_out_++, frame);
  out_.insert(out_.end(), frame.begin(), frame.end());
  out_.insert(out_.end(), mac.begin(), mac.end());
}

bool StoreStream::flush() {
  while (sent_ < out_.size()) {
    FAILPOINT_ON("store/send", channel_.socket.fd());
    const size_t sent = channel_.socket.try_send(out_.data() + sent_, out_.size() - sent_);
    if (sent == 0) return false;
    sent_ += sent;
  }
  out_.clear();
  sent_ = 0;
  return true;
}

std::optional<StoreMessage> StoreStream::try_receive() {
  for (;;) {
    while (received_ < in_.size()) {
      const size_t got = channel_.socket.try_recv(in_.data() + received_, in_.size() - received_);
      if (got == 0) return std::nullopt;
      received_ += got;
    }
    if (in_.size() > kLengthBytes) break;
    const size_t bytes = load_le<uint32_t>(in_.data());
    if (bytes == 0 || bytes > kMostBytes) fail("sent a message with a wrong length");
    in_.resize(kLengthBytes + bytes + sizeof(Digest));
  }
  const Bytes frame = Bytes(in_).first(in_.size() - sizeof(Digest));
  if (!digests_equal(Bytes(in_).last(sizeof(Digest)), mac_of(sign_in_, next_in_++, frame))) {
    fail("sent a message with a wrong signature");
  }
  FAILPOINT_ON("store/received", channel_.socket.fd());
  const Bytes payload = frame.subspan(kLengthBytes + 1);
  StoreMessage message{static_cast<StoreMessageType>(frame[kLengthBytes]),
                       {payload.begin(), payload.end()}};
  in_.assign(kLengthBytes, 0);
  received_ = 0;
  return message;
}

short StoreStream::events() const {
  return static_cast<short>(POLLIN | (sent_ < out_.size() ? POLLOUT : 0));
}

void StoreStream::fail(const char* what) const {
  const std::string who =
      peer() == kStoreRank ? "the rendezvous server" : "rank " + std::to_string(peer());
  throw Error(ErrorCode::kInternal, who + " " + what, peer());
}

}  // namespace hvdtune
