#include "transport/shm/link.h"

#include "transport/link_contract.h"

namespace hvdtune::testing {

LinkPair make_link_pair() {
  auto [first, second] = make_socket_pair();
  Segment made = Segment::create(shm_link_bytes());
  Segment opened = Segment::open(made.offer(), 3);
  return {make_shm_link(std::move(made), std::move(first), true),
          make_shm_link(std::move(opened), std::move(second), false)};
}

}  // namespace hvdtune::testing
