#include "transport/link_contract.h"
#include "transport/tcp/link.h"

namespace hvdtune::testing {

LinkPair make_link_pair() {
  std::vector<Socket> first;
  std::vector<Socket> second;
  for (int stream = 0; stream < 3; ++stream) {
    auto [one, other] = make_socket_pair();
    first.push_back(std::move(one));
    second.push_back(std::move(other));
  }
  return {make_striped_link(std::move(first)), make_striped_link(std::move(second))};
}

}  // namespace hvdtune::testing
