// Who gave the job up has its memory to itself.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "check.h"
#include "transport/shm/arena.h"
#include "transport/shm/peer_process.h"

using namespace hvdtune;

namespace {

constexpr size_t kOnePage = 4096;
constexpr auto kLong = std::chrono::seconds(50);
const std::vector<int> kWorld = {10, 11, 12};

Arena open(const Arena& first, int local_rank) {
  return Arena::open(first.offer(), local_rank, kWorld);
}

void refuse_warning(const std::string& text) { throw Error(ErrorCode::kInternal, text); }

// Local rank 1 in a process of its own.
class OtherRank {
 public:
  OtherRank(const Arena& first, const std::function<int(Arena&)>& body) : pid_(fork()) {
    CHECK(pid_ >= 0);
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that fails ends at once, and this with it
    int code = 99;
    try {
      Arena arena = open(first, 1);
      code = body(arena);
    } catch (const Error&) {
    }
    _exit(code);
  }
  ~OtherRank() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  OtherRank(const OtherRank&) = delete;
  OtherRank& operator=(const OtherRank&) = delete;

  pid_t pid() const { return pid_; }
  void await_stop() const {
    int status = 0;
    CHECK_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    CHECK(WIFSTOPPED(status));
  }
  int end() {
    int status = 0;
    CHECK_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

int stop_while_writing(Arena& arena) {
  const Arena::WritePhase writes(arena);
  raise(SIGSTOP);
  return 0;
}

Error failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "nothing was thrown"};
}

}  // namespace

TEST(nobody_begins_to_write_in_an_abandoned_arena) {
  Arena arena = Arena::create(kOnePage, kWorld);
  Arena survivor = open(arena, 1);
  Arena lost = open(arena, 2);
  {
    const Arena::WritePhase writes(survivor);
  }
  survivor.check_not_abandoned();
  CHECK(arena.has_one_pid_namespace());
  arena.abandon(12, kLong, refuse_warning);
  survivor.abandon(-1, kLong, refuse_warning);  // the first one stands
  for (Arena* each : {&arena, &survivor, &lost}) {
    const Error error = failure_of([&] { const Arena::WritePhase writes(*each); });
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), each == &lost ? 10 : 12);
    const Error same = failure_of([&] { each->check_not_abandoned(); });
    CHECK_EQ(std::string(same.what()), std::string(error.what()));
  }
  // Who was refused is in no write phase: nobody waits for it.
  lost.abandon(10, kLong, refuse_warning);
}

TEST(abandoning_lasts_until_the_others_have_written) {
  Arena arena = Arena::create(kOnePage, kWorld);
  Arena other = open(arena, 1);
  uint64_t memory = 0;
  std::promise<void> begun;
  std::promise<void> goes_on;
  std::jthread writer([&] {
    const Arena::WritePhase writes(other);
    begun.set_value();
    goes_on.get_future().wait();
    std::atomic_ref(memory).store(1, std::memory_order_relaxed);
  });
  begun.get_future().wait();
  std::vector<std::string> told;
  arena.abandon(11, std::chrono::nanoseconds(0), [&](const std::string& text) {
    told.push_back(text);
    goes_on.set_value();  // a rank that is waited for goes on only now
  });
  CHECK_EQ(std::atomic_ref(memory).load(std::memory_order_relaxed), 1U);
  CHECK_EQ(told.size(), 1U);
  CHECK(told[0].find("cannot be killed: it is a thread of this process") != std::string::npos);
}

TEST(a_rank_that_is_stopped_while_it_writes_is_killed) {
  for (const int lost : {11, 12, -1}) {
    Arena arena = Arena::create(kOnePage, kWorld);
    OtherRank other(arena, stop_while_writing);
    other.await_stop();
    std::vector<std::string> told;
    arena.abandon(lost, std::chrono::milliseconds(20),
                  [&](const std::string& text) { told.push_back(text); });
    CHECK_EQ(told.size(), 1U);
    CHECK(told[0].starts_with("rank 11 (pid " + std::to_string(other.pid()) + ") was killed"));
    const int status = other.end();
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
}

TEST(a_rank_that_is_stopped_elsewhere_lives_and_may_not_write) {
  Arena arena = Arena::create(kOnePage, kWorld);
  OtherRank other(arena, [](Arena& mine) {
    raise(SIGSTOP);
    const Error error = failure_of([&] { const Arena::WritePhase writes(mine); });
    return error.code() == ErrorCode::kRankLost ? error.rank() : 98;
  });
  other.await_stop();
  arena.abandon(11, std::chrono::nanoseconds(0), refuse_warning);
  kill(other.pid(), SIGCONT);
  const int status = other.end();
  CHECK(WIFEXITED(status));
  CHECK_EQ(WEXITSTATUS(status), 10);
}

TEST(a_rank_that_died_while_it_wrote_is_not_waited_for) {
  Arena arena = Arena::create(kOnePage, kWorld);
  OtherRank other(arena, [](Arena& mine) {
    const Arena::WritePhase writes(mine);
    raise(SIGKILL);
    return 0;
  });
  siginfo_t info{};
  CHECK_EQ(waitid(P_PID, static_cast<id_t>(other.pid()), &info, WEXITED | WNOWAIT), 0);
  arena.abandon(11, kLong, refuse_warning);  // nobody has taken note of its death yet
  const int status = other.end();
  CHECK(WIFSIGNALED(status));
  arena.abandon(11, kLong, refuse_warning);
}

TEST(another_process_of_the_same_number_is_left_alone) {
  Arena arena = Arena::create(kOnePage, kWorld);
  OtherRank other(arena, [](Arena&) { return pause(); });
  ProcessStat stat;
  CHECK_EQ(read_process_stat(other.pid(), stat), 0);
  PeerProcess earlier(other.pid(), stat.started - 1);
  CHECK(earlier.await_end(0));
  CHECK_EQ(earlier.kill(), "");
  PeerProcess right(other.pid(), stat.started);
  CHECK(!right.await_end(0));
  CHECK_EQ(right.kill(), "");
  CHECK(right.await_end(50'000));
  other.end();
  CHECK(PeerProcess(getpid(), 0).await_end(0));  // this process did not start with the machine
  CHECK(PeerProcess(getpid(), 0).kill() != "");
}
