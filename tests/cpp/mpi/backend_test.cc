// The backend against an MPI of one rank that can be told never to finish.
#include "mpi/backend.h"

#include <atomic>
#include <thread>

#include "base/status.h"
#include "check.h"
#include "collective/world.h"

struct hvdtune_mpi_comm {};
struct hvdtune_mpi_request {};

namespace hvdtune {
namespace {

hvdtune_mpi_comm the_comm;
hvdtune_mpi_request the_request;
std::atomic<bool> never_ends = false;
std::atomic<int> largest_count = 0;
std::atomic<int> calls = 0;

int begin(int count, hvdtune_mpi_request** request) {
  largest_count = std::max(largest_count.load(), count);
  ++calls;
  *request = &the_request;
  return 0;
}

hvdtune_mpi_functions lone_rank() {
  hvdtune_mpi_functions mpi{};
  mpi.version = HVDTUNE_MPI_PLUGIN_VERSION;
  mpi.error_text = [](int, char* text, int) { *text = 0; };
  mpi.state = [](int* initialized, int* finalized) {
    *initialized = 1;
    *finalized = 0;
    return 0;
  };
  mpi.duplicate = [](const void*, hvdtune_mpi_comm** comm, hvdtune_mpi_request** request) {
    *comm = &the_comm;
    return begin(0, request);
  };
  mpi.release = [](hvdtune_mpi_comm*) { return 0; };
  mpi.place = [](hvdtune_mpi_comm*, int* rank, int* size) {
    *rank = 0;
    *size = 1;
    return 0;
  };
  mpi.test = [](hvdtune_mpi_request*, int* done) {
    *done = never_ends ? 0 : 1;
    return 0;
  };
  mpi.allreduce = [](hvdtune_mpi_comm*, void*, int count, int, int, hvdtune_mpi_request** request) {
    return begin(count, request);
  };
  return mpi;
}

const hvdtune_mpi_functions kLoneRank = lone_rank();

struct Fixture {
  Fixture() {
    never_ends = false;
    largest_count = calls = 0;
    auto library = std::make_shared<MpiLibrary>(kLoneRank);
    backend = make_mpi_backend(MpiCommunicator::duplicate(library, nullptr, {}), stop);
    calls = 0;
  }

  testing::World world{1, 1, true};
  testing::Unobserved observer;
  std::unique_ptr<Group> group = world.make_group(0, {0}, observer);
  StopSignal stop;
  std::unique_ptr<Backend> backend;

  bool allreduce(const Reduction& reduction, const Payload& payload) {
    return backend->run(*group,
                        {.op = OpType::kAllreduce, .reduction = reduction, .payload = &payload});
  }
};

TEST(a_plugin_of_another_version_is_refused) {
  hvdtune_mpi_functions other = kLoneRank;
  other.version = HVDTUNE_MPI_PLUGIN_VERSION + 1;
  CHECK_THROWS(ErrorCode::kUsage, MpiLibrary{other});
}

TEST(what_does_not_exist_or_is_no_plugin_is_refused) {
  CHECK_THROWS(ErrorCode::kUsage, MpiLibrary::open("/proc/absent/plugin.so"));
  CHECK_THROWS(ErrorCode::kUsage, MpiLibrary::open("libm.so.6"));
}

TEST(a_rank_that_never_comes_ends_the_start) {
  never_ends = true;
  auto library = std::make_shared<MpiLibrary>(kLoneRank);
  const MpiPatience patience{Deadline::in(std::chrono::milliseconds(30)), nullptr};
  CHECK_THROWS(ErrorCode::kRendezvous, MpiCommunicator::duplicate(library, nullptr, patience));
}

TEST(large_payloads_are_cut_and_scaled_in_the_wider_type) {
  Fixture fixture;
  constexpr size_t kCount = 5'000'000;
  std::vector<int8_t> input(kCount, 3);
  std::vector<int8_t> output(kCount);
  Payload payload;
  payload.add(reinterpret_cast<uint8_t*>(input.data()), reinterpret_cast<uint8_t*>(output.data()),
              kCount);
  const Reduction doubled{DType::kInt8, ReduceOp::kSum, 2.0, 1.0, 1};
  CHECK(fixture.allreduce(doubled, payload));
  CHECK(output == std::vector<int8_t>(kCount, 6));
  CHECK_EQ(largest_count.load(), 8 << 20 >> 2);
  CHECK_EQ(calls.load(), 3);
}

TEST(a_collective_that_cannot_end_is_given_up_when_the_job_stops) {
  Fixture fixture;
  never_ends = true;
  std::vector<float> values(10);
  Payload payload;
  payload.add(reinterpret_cast<uint8_t*>(values.data()), reinterpret_cast<uint8_t*>(values.data()),
              40);
  const std::jthread stopper([&] {
    while (calls == 0) std::this_thread::yield();
    fixture.stop.raise();
  });
  CHECK_THROWS(ErrorCode::kShutdown, fixture.allreduce({}, payload));
}

TEST(adasum_is_not_offered) {
  Fixture fixture;
  Reduction adasum;
  adasum.op = ReduceOp::kAdasum;
  CHECK(!fixture.allreduce(adasum, Payload()));
  CHECK_EQ(calls.load(), 0);
}

}  // namespace
}  // namespace hvdtune
