#include "transport/endpoint.h"

#include <net/if.h>
#include <netinet/in.h>

#include <string>

#include "base/status.h"
#include "check.h"
#include "transport/socket.h"

using namespace hvdtune;

namespace {

uint32_t scope_of(const std::string& address) {
  const Endpoint endpoint = Endpoint::of(address, 80);
  CHECK_EQ(endpoint.family(), AF_INET6);
  return reinterpret_cast<const sockaddr_in6&>(endpoint.storage).sin6_scope_id;
}

}  // namespace

TEST(numeric_addresses_of_both_families_are_read) {
  CHECK_EQ(Endpoint::of("127.0.0.1", 80).family(), AF_INET);
  CHECK_EQ(Endpoint::of("::1", 80).family(), AF_INET6);
  for (const char* text : {"", "localhost", "127.1", "1.2.3.4%lo", "[::1]", "fe80::1%", "%lo"}) {
    CHECK_THROWS(ErrorCode::kUsage, Endpoint::of(text, 80));
  }
}

TEST(an_interface_is_known_by_its_name_or_number) {
  const uint32_t lo = if_nametoindex("lo");
  CHECK(lo != 0);
  CHECK_EQ(scope_of("fe80::1"), 0U);
  CHECK_EQ(scope_of("fe80::1%lo"), lo);
  CHECK_EQ(scope_of("fe80::1%" + std::to_string(lo)), lo);
  try {
    Endpoint::of("fe80::1%none0", 80);
    CHECK(false);
  } catch (const Error& error) {
    CHECK_EQ(std::string(error.what()), "'fe80::1%none0': this host has no interface 'none0'");
  }
}

TEST(every_interface_is_refused_however_it_is_written) {
  for (const char* text : {"0.0.0.0", "::", "::%lo", "::ffff:0.0.0.0"}) {
    CHECK(Endpoint::of(text, 0).is_every_interface());
    CHECK_THROWS(ErrorCode::kUsage, Listener{text});
  }
  for (const char* text : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
    CHECK(!Endpoint::of(text, 0).is_every_interface());
  }
}

TEST(the_port_of_an_address_of_ipv6_can_be_told_from_it) {
  CHECK_EQ(endpoint_name("127.0.0.1", 80), "127.0.0.1:80");
  CHECK_EQ(endpoint_name("fe80::1%eth0", 80), "[fe80::1%eth0]:80");
}

TEST(other_machines_link_local_addresses_are_reached_through_ones_own_interface) {
  CHECK_EQ(without_interface("fe80::1%eth0"), "fe80::1");
  CHECK_EQ(without_interface("10.0.0.1"), "10.0.0.1");
  CHECK_EQ(through_interface_of("fe80::2%eth1", "fe80::1"), "fe80::1%eth1");
  CHECK_EQ(through_interface_of("fe80::2%eth1", "fe80::1%eth0"), "fe80::1%eth0");
  CHECK_EQ(through_interface_of("fe80::2%eth1", "2001:db8::1"), "2001:db8::1");
  CHECK_EQ(through_interface_of("fe80::2%eth1", "10.0.0.1"), "10.0.0.1");
  CHECK_EQ(through_interface_of("10.0.0.2", "fe80::1"), "fe80::1");
}
