// Who gave the job up has its memory to itself.
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
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

uint64_t started(pid_t pid) {
  ProcessStat stat;
  CHECK_EQ(read_process_stat(pid, stat), 0);
  return stat.started;
}

// A file whose reader stays in the kernel, where no signal ends it, as on a network that is gone.
class StuckFile {
 public:
  StuckFile() : device_(::open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    std::string path = "/tmp/hvdtune-stuck-XXXXXX";
    const UniqueFd made(mkstemp(path.data()));
    CHECK(made.get() >= 0);
    path_ = path;
    if (device_.get() < 0) return;
    const std::string options = "fd=" + std::to_string(device_.get()) +
                                ",rootmode=100644,user_id=" + std::to_string(geteuid()) +
                                ",group_id=" + std::to_string(getegid());
    is_mounted_ = mount("stuck", path_.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
    if (is_mounted_) server_ = std::thread([this] { serve(); });
  }
  ~StuckFile() {
    let_go();
    unlink(path_.c_str());
  }
  StuckFile(const StuckFile&) = delete;
  StuckFile& operator=(const StuckFile&) = delete;

  bool is_mounted() const { return is_mounted_; }
  int read_for_ever() const {
    char byte = 0;
    const UniqueFd fd(::open(path_.c_str(), O_RDONLY));
    return static_cast<int>(read(fd.get(), &byte, 1));
  }
  void await_reader() { has_reader_.get_future().wait(); }
  // Whoever reads comes back from the kernel.
  void let_go() {
    if (!server_.joinable()) return;
    is_over_ = true;
    server_.join();
    umount2(path_.c_str(), MNT_DETACH | MNT_FORCE);  // which aborts what is asked for
    device_.reset();
  }

 private:
  void serve() {
    std::vector<char> request(1 << 17);
    while (!is_over_) {
      pollfd asked{device_.get(), POLLIN, 0};
      if (poll(&asked, 1, 10) <= 0) continue;
      if (read(device_.get(), request.data(), request.size()) <= 0) continue;
      fuse_in_header head{};
      std::memcpy(&head, request.data(), sizeof head);
      if (head.opcode == FUSE_INIT) {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 4096;
        answer(head, out);
      } else if (head.opcode == FUSE_GETATTR) {
        fuse_attr_out out{};
        out.attr.ino = 1;
        out.attr.mode = S_IFREG | 0644;
        out.attr.nlink = 1;
        out.attr.size = 4096;
        answer(head, out);
      } else if (head.opcode == FUSE_OPEN) {
        fuse_open_out out{};
        out.open_flags = FOPEN_DIRECT_IO;
        answer(head, out);
      } else if (head.opcode == FUSE_READ) {
        has_reader_.set_value();
      }
    }
  }
  template <typename Out>
  void answer(const fuse_in_header& asked, const Out& out) {
    fuse_out_header head{sizeof head + sizeof out, 0, asked.unique};
    const std::array<iovec, 2> parts = {iovec{&head, sizeof head},
                                        iovec{const_cast<Out*>(&out), sizeof out}};
    CHECK(writev(device_.get(), parts.data(), 2) > 0);
  }

  UniqueFd device_;
  std::string path_;
  bool is_mounted_ = false;
  std::atomic<bool> is_over_{false};
  std::promise<void> has_reader_;
  std::thread server_;
};

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
  CHECK_EQ(arena.abandon(12, kLong, refuse_warning), "");
  CHECK_EQ(survivor.abandon(-1, kLong, refuse_warning), "");  // the first one stands
  for (Arena* each : {&arena, &survivor, &lost}) {
    const Error error = failure_of([&] { const Arena::WritePhase writes(*each); });
    CHECK(error.code() == ErrorCode::kRankLost);
    CHECK_EQ(error.rank(), each == &lost ? 10 : 12);
    const Error same = failure_of([&] { each->check_not_abandoned(); });
    CHECK_EQ(std::string(same.what()), std::string(error.what()));
  }
  // Who was refused is in no write phase: nobody waits for it.
  CHECK_EQ(lost.abandon(10, kLong, refuse_warning), "");
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
  const std::string still_writes =
      arena.abandon(11, std::chrono::nanoseconds(0), [&](const std::string& text) {
        told.push_back(text);
        goes_on.set_value();  // a rank that is waited for goes on only now
      });
  CHECK_EQ(still_writes, "");
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
    const auto keep = [&](const std::string& text) { told.push_back(text); };
    CHECK_EQ(arena.abandon(lost, std::chrono::milliseconds(20), keep), "");
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
  CHECK_EQ(arena.abandon(11, std::chrono::nanoseconds(0), refuse_warning), "");
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
  // Nobody has taken note of its death yet.
  CHECK_EQ(arena.abandon(11, kLong, refuse_warning), "");
  const int status = other.end();
  CHECK(WIFSIGNALED(status));
  CHECK_EQ(arena.abandon(11, kLong, refuse_warning), "");
}

TEST(a_rank_that_cannot_be_killed_and_writes_on_is_named_after_a_while) {
  Arena arena = Arena::create(kOnePage, kWorld);
  Arena other = open(arena, 1);  // of this process, so nobody kills it
  const Arena::WritePhase writes(other);
  std::vector<std::string> told;
  const auto keep = [&](const std::string& text) { told.push_back(text); };
  const std::string still_writes =
      arena.abandon(11, std::chrono::nanoseconds(0), keep, std::chrono::milliseconds(20));
  CHECK_EQ(still_writes, "rank 11 (pid " + std::to_string(getpid()) + ")");
  CHECK_EQ(told.size(), 1U);
  CHECK(told[0].find("cannot be killed") != std::string::npos);
}

TEST(a_rank_that_is_bound_to_die_but_stays_in_the_kernel_is_not_waited_for) {
  StuckFile file;
  if (!file.is_mounted()) return;  // that needs root and FUSE
  Arena arena = Arena::create(kOnePage, kWorld);
  OtherRank other(arena, [&](Arena& mine) {
    const Arena::WritePhase writes(mine);
    return file.read_for_ever();
  });
  file.await_reader();
  PeerProcess process(other.pid(), started(other.pid()));
  CHECK(!process.is_dying_without_copying());  // nobody has killed it yet
  std::vector<std::string> told;
  const auto keep = [&](const std::string& text) { told.push_back(text); };
  const std::string still_writes =
      arena.abandon(11, std::chrono::nanoseconds(0), keep, std::chrono::milliseconds(20));
  CHECK_EQ(still_writes, "");
  CHECK_EQ(told.size(), 1U);
  CHECK(told[0].find("did not end within 0.02 s of SIGKILL") != std::string::npos);
  CHECK(told[0].find("was killed") == std::string::npos);
  file.let_go();
  const int status = other.end();
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
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
