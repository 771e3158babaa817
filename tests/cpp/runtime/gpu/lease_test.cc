// A communicator of a rank that others may have given up.
#include "base/lease.h"

#include "gpu_job.h"
#include "nccl/communicator.h"

using namespace hvdtune;
using namespace hvdtune::testing;

namespace {

template <typename Action>
void expect_shutdown(Action action) {
  try {
    action();
    CHECK(false);
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::kShutdown);
  }
}

uint64_t launches() { return Fake::get().faults_hit("slow-launch"); }

}  // namespace

TEST(nothing_is_put_on_a_stream_without_the_lease) {
  Fake::get().reset();
  CHECK_EQ(Fake::get().set_faults("slow-launch ms=0"), 0);
  const Device device(0);
  const Gpu::Scope scope(*device.gpu());
  const auto nccl = NcclLibrary::open(Fake::library("libnccl.so.2"));
  NcclId id;
  CHECK_EQ(nccl->unique_id(&id), kNcclSuccess);
  const GpuTensorPair tensor(device, floats(1.0F));
  const TensorMemory memory = tensor.memory();
  const auto sum = [&](const NcclLibrary& library, NcclComm comm) {
    return library.all_reduce(memory.input, memory.output, kFloats, NcclType::kFloat32,
                              NcclOp::kSum, comm, device.stream());
  };
  StopSignal stop;
  RankLease held;
  held.extend(RankLease::kForEver);
  NcclCommunicator with(nccl, id, 1, 0, "one with a lease", stop, held);
  with.meet();
  with.issue("ncclAllReduce", sum);
  device.await();
  CHECK_EQ(launches(), 1U);
  with.leave();

  CHECK_EQ(nccl->unique_id(&id), kNcclSuccess);
  const RankLease lost;
  NcclCommunicator without(nccl, id, 1, 0, "one without", stop, lost);
  without.meet();
  stop.raise();
  expect_shutdown([&] { without.issue("ncclAllReduce", sum); });
  expect_shutdown([&] { without.leave(); });
  expect_shutdown([&] {
    without.issue_group("a group", [&](const NcclLibrary& library, NcclComm comm) {
      without.check(sum(library, comm), "ncclAllReduce");
    });
  });
  const std::array given_up = {without.give_up()};
  NcclCommunicator::abort(*nccl, given_up);
  CHECK_EQ(launches(), 1U);
  GpuJob::check_order();
}
