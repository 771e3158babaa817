#include "base/processors.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "check.h"

using namespace hvdtune;

namespace {

// Control groups as the kernel shows them, in a folder of the test's own.
class FakeCgroups {
 public:
  FakeCgroups(const std::string& memberships, const std::map<std::string, std::string>& files) {
    std::string name = (std::filesystem::temp_directory_path() / "cgroups-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr);
    folder_ = name;
    write("memberships", memberships);
    for (const auto& [path, content] : files) write("mounts/" + path, content);
  }
  ~FakeCgroups() { std::filesystem::remove_all(folder_); }
  FakeCgroups(const FakeCgroups&) = delete;
  FakeCgroups& operator=(const FakeCgroups&) = delete;

  int quota() const {
    return quota_processors({(folder_ / "mounts").string(), (folder_ / "memberships").string()});
  }

 private:
  void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << content;
  }

  std::filesystem::path folder_;
};

}  // namespace

TEST(version_2_quotas_are_read_and_rounded_up) {
  const auto quota = [](const std::string& limit) {
    return FakeCgroups("0::/job\n", {{"job/cpu.max", limit}}).quota();
  };
  CHECK_EQ(quota("max 100000\n"), 0);
  CHECK_EQ(quota("200000 100000\n"), 2);
  CHECK_EQ(quota("150000 100000\n"), 2);
  CHECK_EQ(quota("200001 100000\n"), 3);
  CHECK_EQ(quota("1000 100000\n"), 1);
  CHECK_EQ(quota("25000 50000\n"), 1);
}

TEST(what_is_no_quota_limits_nothing) {
  for (const char* limit : {"", "max", "200000", "200000 0", "-1 100000", "nonsense"}) {
    CHECK_EQ(FakeCgroups("0::/job\n", {{"job/cpu.max", limit}}).quota(), 0);
  }
  for (const char* memberships : {"", "0:", "0::/elsewhere\n", "3:memory:/job\n", "x\n"}) {
    CHECK_EQ(FakeCgroups(memberships, {{"job/cpu.max", "100000 100000"}}).quota(), 0);
  }
  CHECK_EQ(quota_processors({"/proc/absent", "/proc/absent"}), 0);
}

TEST(the_strictest_group_around_a_process_counts) {
  const auto quota = [](const char* inner, const char* outer) {
    return FakeCgroups("0::/pod/job/step\n", {{"pod/cpu.max", outer}, {"pod/job/cpu.max", inner}})
        .quota();
  };
  CHECK_EQ(quota("400000 100000", "max 100000"), 4);
  CHECK_EQ(quota("max 100000", "300000 100000"), 3);
  CHECK_EQ(quota("400000 100000", "300000 100000"), 3);
  CHECK_EQ(quota("200000 100000", "300000 100000"), 2);
}

// A container sees its own group at the root of the mount.
TEST(a_container_finds_its_quota_at_the_root) {
  CHECK_EQ(FakeCgroups("0::/\n", {{"cpu.max", "200000 100000\n"}}).quota(), 2);
  CHECK_EQ(FakeCgroups("0::/../outside\n", {{"cpu.max", "200000 100000\n"}}).quota(), 2);
  CHECK_EQ(FakeCgroups("4:cpu,cpuacct:/docker/4f\n", {{"cpu/cpu.cfs_quota_us", "300000\n"},
                                                      {"cpu/cpu.cfs_period_us", "100000\n"}})
               .quota(),
           3);
}

TEST(version_1_quotas_are_read_wherever_the_controller_is_mounted) {
  for (const char* mount : {"cpu", "cpu,cpuacct"}) {
    const auto quota = [&](const char* limit) {
      const std::string group = std::string(mount) + "/slurm/job/";
      return FakeCgroups(
                 "9:cpuset:/slurm\n5:cpu,cpuacct:/slurm/job\n1:name=systemd:/\n0::/\n",
                 {{group + "cpu.cfs_quota_us", limit}, {group + "cpu.cfs_period_us", "100000\n"}})
          .quota();
    };
    CHECK_EQ(quota("-1\n"), 0);
    CHECK_EQ(quota("250000\n"), 3);
  }
}

TEST(a_process_has_the_processors_on_which_it_may_run) {
  cpu_set_t before;
  CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CHECK(usable_processors() >= 1);
  CHECK(usable_processors() <= CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  CHECK_EQ(usable_processors(), 1);
  CHECK_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(processes_bound_to_a_processor_each_have_them_together) {
  cpu_set_t before;
  CHECK_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  const auto bind_to = [](int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  };
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) cpus.push_back(cpu);
  }
  std::array<int, 2> ends{};
  CHECK_EQ(pipe(ends.data()), 0);
  bind_to(cpus.back());  // which the child keeps
  const pid_t child = fork();
  if (child == 0) {
    char nothing = 0;
    close(ends[1]);
    _exit(static_cast<int>(read(ends[0], &nothing, 1)));  // until the parent closes the other end
  }
  bind_to(cpus.front());
  const int usable = cpus.size() > 1 && quota_processors() != 1 ? 2 : 1;
  CHECK_EQ(usable_processors(std::array<int, 2>{0, child}), usable);
  CHECK_EQ(usable_processors(std::array<int, 1>{0}), 1);
  close(ends[1]);
  int status = -1;
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK_EQ(status, 0);
  CHECK_EQ(usable_processors(std::array<int, 2>{0, child}), 1);
  CHECK_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}
