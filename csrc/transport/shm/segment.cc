#include "transport/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/failpoint.h"
#include "base/hmac.h"
#include "base/status.h"

namespace hvdtune {
namespace {

constexpr const char* kName = "hvdtune";

[[noreturn]] void cannot_open(const SegmentOffer& offer, int rank, const std::string& why) {
  throw Error(ErrorCode::kInternal,
              "cannot open the shared memory of rank " + std::to_string(rank) + " (pid " +
                  std::to_string(offer.pid) + "): " + why +
                  "; set HVDTUNE_TRANSPORT=tcp if the ranks of a host run in separate containers "
                  "or as separate users",
              rank);
}

[[noreturn]] void cannot_make(const char* call, size_t bytes) {
  const std::string why = system_message(call, errno);
  throw Error(ErrorCode::kInternal, "cannot allocate " + std::to_string((bytes + 1048575) >> 20) +
                                        " MiB of shared memory: " + why +
                                        "; set HVDTUNE_TRANSPORT=tcp to do without it");
}

// In another pid namespace the same path may name anything: look before opening it.
bool is_segment(const std::string& path) {
  std::array<char, 64> target{};
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  const std::string prefix = std::string("/memfd:") + kName;
  return length > 0 &&
         std::string_view(target.data(), static_cast<size_t>(length)).starts_with(prefix);
}

}  // namespace

Segment::Segment(UniqueFd fd, size_t bytes) : fd_(std::move(fd)), bytes_(bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (at == MAP_FAILED) cannot_make("mmap", bytes);
  data_ = static_cast<uint8_t*>(at);
}

Segment::~Segment() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Segment::make_private() {
  // A failure leaves the memory shared; a child of fork could not report it.
  if (data_ != nullptr) {
    mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd_.get(), 0);
  }
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Segment Segment::create(size_t bytes) {
  UniqueFd fd(memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) cannot_make("memfd_create", bytes);
  FAILPOINT("segment/create");
  // Sealed against shrinking: an access beyond the end would be a SIGBUS in every rank.
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    cannot_make("ftruncate", bytes);
  }
  Segment segment(std::move(fd), bytes);
  random_bytes({segment.data_, sizeof(SegmentOffer::cookie)});
  return segment;
}

Segment Segment::open(const SegmentOffer& offer, int rank) {
  const std::string path = "/proc/" + std::to_string(offer.pid) + "/fd/" + std::to_string(offer.fd);
  if (!is_segment(path)) cannot_open(offer, rank, path + " is not a segment");
  FAILPOINT("segment/open");
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) cannot_open(offer, rank, system_message(path, errno));
  struct stat facts{};
  if (fstat(fd.get(), &facts) != 0) cannot_open(offer, rank, system_message(path, errno));
  if (facts.st_size < static_cast<off_t>(kReserved) ||
      static_cast<uint64_t>(facts.st_size) != offer.bytes) {
    cannot_open(offer, rank, path + " has a different size");
  }
  Segment segment(std::move(fd), offer.bytes);
  if (std::memcmp(segment.data_, offer.cookie.data(), offer.cookie.size()) != 0) {
    cannot_open(offer, rank, path + " belongs to another job");
  }
  segment.close_fd();
  return segment;
}

SegmentOffer Segment::offer() const {
  SegmentOffer offer{getpid(), fd_.get(), bytes_, {}};
  std::memcpy(offer.cookie.data(), data_, offer.cookie.size());
  return offer;
}

}  // namespace hvdtune
