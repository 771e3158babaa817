#include "transport/shm/peer_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/status.h"

namespace hvdtune {
namespace {

constexpr size_t kRangesPerCall = 64;

using Call = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                         unsigned long);

// 0, or an errno value.
int copy(Call call, int32_t pid, uint8_t* local, std::span<const PeerMemory::RemoteRange> remote) {
  std::array<iovec, kRangesPerCall> vectors;
  while (!remote.empty()) {
    const size_t count = std::min(remote.size(), kRangesPerCall);
    size_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      // An address of another process.
      vectors[i] = {reinterpret_cast<void*>(remote[i].address), remote[i].bytes};
      bytes += remote[i].bytes;
    }
    const iovec mine{local, bytes};
    const ssize_t done = call(pid, &mine, 1, vectors.data(), count, 0);
    if (done < 0) return errno;
    if (static_cast<size_t>(done) != bytes) return EFAULT;
    local += bytes;
    remote = remote.subspan(count);
  }
  return 0;
}

[[noreturn]] void lost(int rank, const std::string& how) {
  throw Error(ErrorCode::kRankLost, "rank " + std::to_string(rank) + " is lost: " + how, rank);
}

[[noreturn]] void lost(int rank, const char* what, int error_number) {
  lost(rank, "its memory cannot be accessed: " + system_message(what, error_number));
}

}  // namespace

bool PeerMemory::reachable() {
  if (reachable_) return *reachable_;
  std::array<uint8_t, sizeof card_.cookie> found{};
  const RemoteRange range{card_.address, found.size()};
  const bool read =
      process_.lives() && copy(&process_vm_readv, card_.pid, found.data(), {&range, 1}) == 0;
  // This writes back the same bytes.
  reachable_ = read && found == card_.cookie &&
               copy(&process_vm_writev, card_.pid, found.data(), {&range, 1}) == 0;
  return *reachable_;
}

void PeerMemory::read(std::span<const RemoteRange> from, uint8_t* to) const {
  const int error = copy(&process_vm_readv, card_.pid, to, from);
  if (error != 0) lost(rank_, "process_vm_readv", error);
}

void PeerMemory::write(const uint8_t* from, std::span<const RemoteRange> to) {
  if (!process_.lives()) lost(rank_, "its process has ended or cannot be found");
  const int error = copy(&process_vm_writev, card_.pid, const_cast<uint8_t*>(from), to);
  if (error != 0) lost(rank_, "process_vm_writev", error);
}

uint8_t* PeerMemory::mapped(const SegmentOffer& offer) {
  for (const Mapping& known : mappings_) {
    if (known.offer.cookie == offer.cookie) return known.segment.data();
  }
  try {
    return mappings_.emplace_back(Mapping{offer, Segment::open(offer, rank_)}).segment.data();
  } catch (const Error&) {
    if (has_ended()) lost(rank_, "its process has ended");
    throw;
  }
}

bool PeerMemory::has_ended() const {
  if (card_.pid_namespace == 0 || card_.pid_namespace != own_pid_namespace()) return false;
  std::array<uint8_t, sizeof card_.cookie> found{};
  const RemoteRange range{card_.address, found.size()};
  return copy(&process_vm_readv, card_.pid, found.data(), {&range, 1}) == ESRCH;
}

}  // namespace hvdtune
