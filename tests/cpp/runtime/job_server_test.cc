// The launcher's port while a job stands.
#include "runtime/job.h"
#include "transport/blocking_socket.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

Deadline soon() { return Deadline::in(std::chrono::seconds(20)); }

}  // namespace

TEST(nobody_else_can_listen_at_the_launchers_port) {
  Job job({.size = 1});
  CHECK_THROWS(ErrorCode::kRendezvous, Listener("127.0.0.1", job.server().port()));
}

TEST(who_connects_to_a_job_that_has_formed_is_cut_off_at_once) {
  const StopSignal stop;
  Job job({.size = 1});
  for (int i = 0; i < 3; ++i) {
    Socket socket = connect_to("127.0.0.1", job.server().port(), soon(), stop);
    wait_ready(socket.fd(), POLLIN, soon(), stop, "be cut off");
    char byte = 0;
    CHECK_THROWS(ErrorCode::kRankLost, socket.try_recv(&byte, 1));
  }
}
