#include "transport/tcp/link.h"

#include "transport/link_contract.h"

namespace hvdtune::testing {

LinkPair make_link_pair() {
  auto [first, second] = make_socket_pair();
  return {make_tcp_link(std::move(first)), make_tcp_link(std::move(second))};
}

}  // namespace hvdtune::testing
