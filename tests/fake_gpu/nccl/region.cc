#include "region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <utility>

namespace fake_gpu {
namespace {

constexpr char kFolder[] = "/dev/shm/";
constexpr char kPrefix[] = "fake-nccl-";
constexpr size_t kHeaderBytes = 4096;

struct Header {
  std::atomic<uint32_t> bell;
  std::atomic<int> ranks;
};

}  // namespace

void QueueCard::write(const QueueState& state) {
  ++version_;
  waiting_ = state.waiting;
  first_comm_ = state.first_comm;
  first_ = state.first;
  ++version_;
}

bool QueueCard::read(QueueState& state) const {
  const uint64_t before = version_;
  state = {waiting_, first_comm_, first_};
  return before % 2 == 0 && version_ == before;
}

Region::Region(std::string name, int ranks) : name_(std::move(name)), ranks_(ranks) {
  const auto count = static_cast<size_t>(ranks);
  const size_t cards_at = kHeaderBytes;
  const size_t queues_at = cards_at + count * sizeof(RankCard);
  const size_t mails_at = queues_at + count * count * sizeof(QueueCard);
  const size_t slots_at = mails_at + count * count * sizeof(Mail);
  bytes_ = slots_at + count * kSlotBytes;
  const std::string path = kFolder + name_;
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("cannot open " + path + ": " + std::strerror(errno));
  const bool sized = ::ftruncate(file, static_cast<off_t>(bytes_)) == 0;
  memory_ =
      sized ? ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  ::close(file);
  if (memory_ == MAP_FAILED) throw std::runtime_error("cannot map " + path);
  auto* first = static_cast<char*>(memory_);
  auto* header = reinterpret_cast<Header*>(first);
  bell_ = &header->bell;
  cards_ = reinterpret_cast<RankCard*>(first + cards_at);
  queues_ = reinterpret_cast<QueueCard*>(first + queues_at);
  mails_ = reinterpret_cast<Mail*>(first + mails_at);
  slots_ = first + slots_at;
  int expected = 0;
  if (!header->ranks.compare_exchange_strong(expected, ranks) && expected != ranks) {
    ::munmap(memory_, bytes_);
    throw std::runtime_error("one rank says there are " + std::to_string(ranks) +
                             " ranks, another that there are " + std::to_string(expected));
  }
}

Region::~Region() { ::munmap(memory_, bytes_); }

void Region::unlink() { ::unlink((kFolder + name_).c_str()); }

void Region::ring() {
  bell_->fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(bell_), FUTEX_WAKE, INT_MAX, nullptr, nullptr,
            0);
}

void Region::sleep(uint32_t heard) {
  const timespec soon{0, 2'000'000};
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(bell_), FUTEX_WAIT, heard, &soon, nullptr, 0);
}

std::string new_region_name() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const int owner = std::atoi(name.c_str() + sizeof kPrefix - 1);
    if (owner > 0 && ::kill(owner, 0) != 0 && errno == ESRCH) {
      std::filesystem::remove(entry.path(), error);  // another process may have been quicker
    }
  }
  std::random_device random;
  return kPrefix + std::to_string(::getpid()) + "-" + std::to_string(random()) + "-" +
         std::to_string(random());
}

}  // namespace fake_gpu
