// Ranks as real processes: memory is shared between them, and death is seen.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "check.h"
#include "transport/exchange.h"
#include "transport/mesh.h"
#include "transport/rendezvous.h"
#include "transport/soon.h"

using namespace hvdtune;
using hvdtune::testing::soon;

namespace {

MeshOptions options_of(int rank, uint16_t port, bool shared_memory) {
  MeshOptions options;
  options.rank = rank;
  options.size = 2;
  options.store_port = port;
  options.shared_memory = shared_memory;
  options.arena_slot_bytes = 4096;
  return options;
}

// Sends 7, leaves 8 in the arena, and dies without a word once rank 0 has answered.
[[noreturn]] void be_rank_one(uint16_t port, bool shared_memory) {
  const StopSignal stop;
  Mesh mesh = connect_mesh(options_of(1, port, shared_memory), stop);
  if (mesh.arena) {
    *mesh.arena->slot(1, 0) = 8;
    mesh.arena->post(0);
  }
  const int sent = 7;
  int answer = 0;
  Transfer transfer{mesh.links[0].get(), &sent, sizeof sent, &answer, sizeof answer};
  exchange({&transfer, 1}, soon(), stop, 0);
  kill(getpid(), SIGKILL);
  _exit(1);
}

void lose_rank_one(bool shared_memory) {
  Listener listener("127.0.0.1");
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) be_rank_one(listener.port(), shared_memory);
  const StopSignal stop;
  auto server = std::async(std::launch::async, [&] {
    return form_job(listener, {Key{}, 2, 0, std::chrono::seconds(60)}, stop);
  });
  Mesh mesh = connect_mesh(options_of(0, listener.port(), shared_memory), stop);
  CHECK_EQ(mesh.arena != nullptr, shared_memory);
  if (mesh.arena) {
    mesh.arena->post(1);
    mesh.arena->await(1, {soon(), stop, 0});
    CHECK_EQ(int{*mesh.arena->slot(1, 0)}, 8);
  }
  int value = 0;
  Transfer transfer{mesh.links[1].get(), &value, sizeof value, &value, sizeof value};
  exchange({&transfer, 1}, soon(), stop, 0);
  CHECK_EQ(value, 7);
  try {
    exchange({&transfer, 1}, soon(), stop, 0);
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), 1);
  }
  CHECK_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace

TEST(a_killed_rank_is_seen_through_shared_memory) { lose_rank_one(true); }

TEST(a_killed_rank_is_seen_through_sockets) { lose_rank_one(false); }
