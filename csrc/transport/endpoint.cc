#include "transport/endpoint.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

#include "base/status.h"

namespace hvdtune {
namespace {

bool is_link_local(const std::string& address) {
  in6_addr parsed{};
  return inet_pton(AF_INET6, address.c_str(), &parsed) == 1 && IN6_IS_ADDR_LINKLOCAL(&parsed);
}

// By its name or its number.
uint32_t interface_index(const std::string& name) {
  if (const uint32_t index = if_nametoindex(name.c_str())) return index;
  uint32_t index = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, index);
  return parsed.ec == std::errc() && parsed.ptr == end ? index : 0;
}

template <typename Address>
Endpoint filled(const Address& address) {
  Endpoint result;
  std::memcpy(&result.storage, &address, sizeof address);
  result.bytes = sizeof address;
  return result;
}

}  // namespace

Endpoint Endpoint::of(const std::string& address, uint16_t port) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) return filled(v4);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const std::string number = without_interface(address);
  if (inet_pton(AF_INET6, number.c_str(), &v6.sin6_addr) != 1) {
    throw Error(ErrorCode::kUsage, "'" + address + "' is not a numeric IP address");
  }
  if (number.size() == address.size()) return filled(v6);
  const std::string interface = address.substr(number.size() + 1);
  v6.sin6_scope_id = interface_index(interface);
  if (v6.sin6_scope_id == 0) {
    throw Error(ErrorCode::kUsage,
                "'" + address + "': this host has no interface '" + interface + "'");
  }
  return filled(v6);
}

bool Endpoint::is_every_interface() const {
  if (family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr == INADDR_ANY;
  }
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr;
  constexpr size_t kMappedAt = 12;  // an address of IPv4 in one of IPv6
  const bool is_mapped_any =
      IN6_IS_ADDR_V4MAPPED(&v6) &&
      std::memcmp(v6.s6_addr + kMappedAt, &in6addr_any, sizeof(in_addr)) == 0;
  return IN6_IS_ADDR_UNSPECIFIED(&v6) || is_mapped_any;
}

std::string endpoint_name(const std::string& address, uint16_t port) {
  const bool is_v6 = address.find(':') != std::string::npos;
  return (is_v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::string without_interface(const std::string& address) {
  return address.substr(0, address.find('%'));
}

std::string through_interface_of(const std::string& own, const std::string& address) {
  const size_t interface = own.find('%');
  if (interface == std::string::npos || !is_link_local(address)) return address;
  return address + own.substr(interface);
}

}  // namespace hvdtune
