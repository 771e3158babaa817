// Addresses as text: numeric IPv4 or IPv6. A link-local address of IPv6 is one of many until the
// interface is known, fe80::1%eth0, whose name is this machine's own affair.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace hvdtune {

struct Endpoint {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  // Throws Error(kUsage) for what is no numeric address, and for an interface that is not there.
  static Endpoint of(const std::string& address, uint16_t port);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  // Whether it stands for all interfaces of this machine.
  bool is_every_interface() const;
};

// 127.0.0.1:80, [::1]:80
std::string endpoint_name(const std::string& address, uint16_t port);

// What another machine is told of `address`.
std::string without_interface(const std::string& address);
// What another machine has told, as this one reaches it: a link-local address through the interface
// of `own`, an address of this machine.
std::string through_interface_of(const std::string& own, const std::string& address);

}  // namespace hvdtune
