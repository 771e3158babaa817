// What NCCL's kernels do: data between the ranks of a communicator.
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>

#include "../engine/faults.h"
#include "../engine/violations.h"
#include "communicator.h"

namespace fake_gpu {
namespace {

bool is_registered(const ncclComm* comm, const void* buffer) {
  const auto address = reinterpret_cast<uint64_t>(buffer);
  return std::any_of(comm->registered.begin(), comm->registered.end(), [&](const auto& known) {
    return address >= known->begin && address < known->begin + known->bytes;
  });
}

using Parts = std::vector<KernelPart>;

void stay_until_aborted(ncclComm* comm, const Parts& parts) {
  wait_in_kernel(comm, parts, [] { return false; });
}

// One collective on its way through the slots.
class Collective {
 public:
  Collective(ncclComm* comm, const Parts& parts, const Request& request)
      : comm_(comm), parts_(parts), request_(request), bytes_(bytes_of_dtype(request.dtype)) {}

  void run() {
    if (!agree()) return;
    const bool scatters = request_.kind == Kind::kReduceScatter;
    const size_t total = request_.count * (scatters ? static_cast<size_t>(comm_->size) : 1);
    const size_t most = kSlotBytes / bytes_;
    for (size_t first = 0; first < total; first += most) {
      if (!exchange(first, std::min(most, total - first))) return;
    }
  }

 private:
  // Runs `write`, waits until all have written, runs `read`.
  template <typename Write, typename Read>
  bool round(Write write, Read read) {
    Region& region = *comm_->region;
    const uint64_t now = comm_->rounds;
    const auto all = [&](std::atomic<uint64_t> RankCard::* counter, uint64_t reached) {
      for (int rank = 0; rank < comm_->size; ++rank) {
        if ((region.card(rank).*counter).load() < reached) return false;
      }
      return true;
    };
    if (!wait_in_kernel(comm_, parts_, [&] { return all(&RankCard::read, now); })) return false;
    write();
    region.card(comm_->rank).written = now + 1;
    region.ring();
    if (!wait_in_kernel(comm_, parts_, [&] { return all(&RankCard::written, now + 1); })) {
      return false;
    }
    read();
    comm_->rounds = now + 1;
    region.card(comm_->rank).read = now + 1;
    region.ring();
    return true;
  }

  bool agree() {
    Region& region = *comm_->region;
    const int registered =
        (is_registered(comm_, request_.from) ? 1 : 0) | (is_registered(comm_, request_.to) ? 2 : 0);
    // Operations of ncclRedOpCreatePreMulSum have numbers of each rank's own.
    const int op = std::min<int>(request_.op, ncclNumOps);
    const Descriptor mine{static_cast<int>(request_.kind),
                          request_.dtype,
                          op,
                          request_.peer,
                          request_.count,
                          registered};
    bool same = true;
    const bool went = round([&] { region.card(comm_->rank).descriptor = mine; },
                            [&] {
                              for (int rank = 0; rank < comm_->size && same; ++rank) {
                                const Descriptor other = region.card(rank).descriptor;
                                same = other.kind == mine.kind && other.dtype == mine.dtype &&
                                       other.op == mine.op && other.root == mine.root &&
                                       other.count == mine.count;
                                if (!same) report_difference(rank, other);
                                if (other.buffers_registered != mine.buffers_registered)
                                  report_mixture(rank);
                              }
                            });
    if (went && !same) stay_until_aborted(comm_, parts_);
    return went && same;
  }

  void report_difference(int rank, const Descriptor& other) {
    violate("mismatch", "In " + comm_->name + ", rank " + std::to_string(comm_->rank) + " calls " +
                            name_of(request_.kind) + " of " + std::to_string(request_.count) +
                            " elements of type " + std::to_string(request_.dtype) + ", rank " +
                            std::to_string(rank) + " " + name_of(static_cast<Kind>(other.kind)) +
                            " of " + std::to_string(other.count) + " of type " +
                            std::to_string(other.dtype) +
                            "; with NCCL they would hang or destroy data.");
  }

  void report_mixture(int rank) {
    violate("mixed-registration", std::string(name_of(request_.kind)) + " has buffers on rank " +
                                      std::to_string(comm_->rank) + " and rank " +
                                      std::to_string(rank) + " of " + comm_->name +
                                      ", of which one is registered and the other is not.");
  }

  Reduction reduction() const {
    Reduction how{request_.dtype, request_.op, false, 1.0, 1};
    if (request_.op >= ncclNumOps) {
      const Scaling& scaling = comm_->scalings.at(request_.op);
      how.op = ncclSum;
      how.scales = true;
      how.scale = scaling.on_device ? value_of(scaling.dtype, host_address(scaling.address))
                                    : scaling.scale;
    } else if (request_.op == ncclAvg) {
      how.op = ncclSum;
      how.scales = is_floating(request_.dtype);
      how.scale = 1.0 / comm_->size;
      how.divisor = how.scales ? 1 : comm_->size;
    }
    return how;
  }

  // Elements first to first + count of what every rank sends.
  bool exchange(size_t first, size_t count) {
    Region& region = *comm_->region;
    const bool sends = request_.kind != Kind::kBroadcast || request_.peer == comm_->rank;
    return round(
        [&] {
          if (!sends) return;
          std::memcpy(region.slot(comm_->rank),
                      static_cast<char*>(host_address(reinterpret_cast<uint64_t>(request_.from))) +
                          first * bytes_,
                      count * bytes_);
        },
        [&] { receive(first, count); });
  }

  void receive(size_t first, size_t count) {
    Region& region = *comm_->region;
    char* to = static_cast<char*>(host_address(reinterpret_cast<uint64_t>(request_.to)));
    switch (request_.kind) {
      case Kind::kBroadcast:
        std::memcpy(to + first * bytes_, region.slot(request_.peer), count * bytes_);
        break;
      case Kind::kAllGather:
        for (int rank = 0; rank < comm_->size; ++rank) {
          const size_t place = static_cast<size_t>(rank) * request_.count + first;
          std::memcpy(to + place * bytes_, region.slot(rank), count * bytes_);
        }
        break;
      case Kind::kReduce:
        if (request_.peer == comm_->rank) reduce_part(first, first, count, to + first * bytes_);
        break;
      case Kind::kAllReduce:
        reduce_part(first, first, count, to + first * bytes_);
        break;
      default: {
        const size_t mine = static_cast<size_t>(comm_->rank) * request_.count;
        const size_t begin = std::max(first, mine);
        const size_t end = std::min(first + count, mine + request_.count);
        if (begin < end) reduce_part(first, begin, end - begin, to + (begin - mine) * bytes_);
      }
    }
  }

  // Elements begin to begin + count; the slots begin with element `first`.
  void reduce_part(size_t first, size_t begin, size_t count, char* out) {
    std::vector<const char*> inputs;
    for (int rank = 0; rank < comm_->size; ++rank) {
      inputs.push_back(comm_->region->slot(rank) + (begin - first) * bytes_);
    }
    reduce(reduction(), inputs.data(), comm_->size, begin, count, out);
  }

  ncclComm* const comm_;
  const Parts& parts_;
  const Request& request_;
  const size_t bytes_;
};

// All sends and receives of a group at once. Between two ranks they are in order.
class PointToPoint {
 public:
  PointToPoint(ncclComm* comm, const Parts& parts, const std::vector<Request>& requests)
      : comm_(comm), parts_(parts) {
    for (const auto& request : requests) {
      if (is_point_to_point(request.kind) && request.count > 0) {
        queues_[{request.kind, request.peer}].push_back(
            {request, request.count * bytes_of_dtype(request.dtype), 0});
      }
    }
  }

  void run() {
    while (!queues_.empty() && !mismatch_) {
      if (!wait_in_kernel(comm_, parts_, [&] { return advance(); })) return;
    }
    if (mismatch_) stay_until_aborted(comm_, parts_);
  }

 private:
  struct Transfer {
    Request request;
    size_t bytes;
    size_t moved;
  };

  // Moves what can be moved; whether that was anything.
  bool advance() {
    bool moved = false;
    for (auto at = queues_.begin(); at != queues_.end();) {
      auto& [key, queue] = *at;
      const bool went = key.first == Kind::kSend ? send(queue.front()) : receive(queue.front());
      moved = moved || went || mismatch_;
      if (went && queue.front().moved == queue.front().bytes) queue.pop_front();
      at = queue.empty() ? queues_.erase(at) : std::next(at);
    }
    if (moved) comm_->region->ring();
    return moved;
  }

  bool send(Transfer& transfer) {
    Mail& mail = comm_->region->mail(comm_->rank, transfer.request.peer);
    if (mail.sent.load() != mail.taken.load()) return false;
    const size_t bytes = std::min(kMailBytes, transfer.bytes - transfer.moved);
    const auto* from =
        static_cast<const char*>(host_address(reinterpret_cast<uint64_t>(transfer.request.from)));
    std::memcpy(mail.chunk, from + transfer.moved, bytes);
    mail.message_bytes = transfer.bytes;
    mail.chunk_bytes = bytes;
    transfer.moved += bytes;
    ++mail.sent;
    return true;
  }

  bool receive(Transfer& transfer) {
    Mail& mail = comm_->region->mail(transfer.request.peer, comm_->rank);
    if (mail.sent.load() == mail.taken.load()) return false;
    if (mail.message_bytes != transfer.bytes) {
      violate("mismatch", "In " + comm_->name + ", rank " + std::to_string(transfer.request.peer) +
                              " sends " + std::to_string(mail.message_bytes) + " bytes and rank " +
                              std::to_string(comm_->rank) + " receives " +
                              std::to_string(transfer.bytes) +
                              "; with NCCL they would hang or destroy data.");
      mismatch_ = true;
      return false;
    }
    auto* to = static_cast<char*>(host_address(reinterpret_cast<uint64_t>(transfer.request.to)));
    std::memcpy(to + transfer.moved, mail.chunk, mail.chunk_bytes);
    transfer.moved += mail.chunk_bytes;
    ++mail.taken;
    return true;
  }

  ncclComm* const comm_;
  const Parts& parts_;
  std::map<std::pair<Kind, int>, std::deque<Transfer>> queues_;
  bool mismatch_ = false;
};

// This rank's kernel waits for a peer whose kernel waits for its device, which a kernel of another
// communicator has first, for which this rank would have to get to a kernel that waits behind this.
bool report_crossed_order(ncclComm* comm, const Parts& parts) {
  for (int peer = 0; peer < static_cast<int>(parts.size()); ++peer) {
    const KernelPart& part = parts[static_cast<size_t>(peer)];
    QueueState theirs;
    if (!part.is_needed || !comm->region->queue(peer, comm->rank).read(theirs)) continue;
    if (theirs.waiting == 0 || theirs.waiting > part.number || theirs.first == 0) continue;
    const std::lock_guard lock(engine().mutex);
    for (const auto& mine : comm->context->nccl_kernels) {
      if (mine.comm == comm || mine.comm->id != theirs.first_comm) continue;
      const int there = rank_of(mine.comm, comm->region->card(peer));
      if (there < 0) continue;
      const uint64_t number = mine.parts[static_cast<size_t>(there)].number;
      if (number == 0 || number > theirs.first) continue;
      violate("communicator-order",
              "Rank " + std::to_string(comm->rank) + " of " + comm->name +
                  " has issued operations of two communicators in the order opposite to rank " +
                  std::to_string(peer) + "'s: both wait for each other for ever.");
      return true;
    }
  }
  return false;
}

// What a test wants to happen to this operation. False if it does not go on.
bool strike_faults(ncclComm* comm, const Parts& parts) {
  const int64_t operation = ++comm->family->operations;
  const int rank = comm->family->rank;
  const auto given_up = [](void* c) { return static_cast<ncclComm*>(c)->aborted.load(); };
  if (const auto late = strike("late-peer", {{"rank", rank}, {"op", operation}})) {
    if (!sleep_for_fault(late->value("ms", 1000), given_up, comm)) return !comm->aborted;
  }
  if (strike("kill", {{"rank", rank}, {"op", operation}})) ::raise(SIGKILL);
  if (const auto error = strike("async-error", {{"rank", rank}, {"op", operation}})) {
    failed(comm, static_cast<ncclResult_t>(error->value("code", ncclRemoteError)),
           "operation " + std::to_string(operation) + " of rank " + std::to_string(rank) +
               " failed, as a fault asked");
    comm->state = static_cast<int>(error->value("code", ncclRemoteError));
    stay_until_aborted(comm, parts);
    return false;
  }
  return true;
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"ncclAllReduce", "ncclReduce",    "ncclReduceScatter",
                                    "ncclAllGather", "ncclBroadcast", "ncclSend",
                                    "ncclRecv"};
  return kNames[static_cast<int>(kind)];
}

bool is_point_to_point(Kind kind) { return kind == Kind::kSend || kind == Kind::kRecv; }

bool wait_in_kernel(ncclComm* comm, const Parts& parts, const std::function<bool()>& done) {
  Region& region = *comm->region;
  const uint64_t generation = release_generation();
  bool reported = false;
  for (;;) {
    const uint32_t heard = region.bell();
    if (comm->aborted || release_generation() != generation) return false;
    if (done()) return true;
    reported = reported || report_crossed_order(comm, parts);
    region.sleep(heard);
  }
}

void run_kernel(ncclComm* comm, const Parts& parts, const std::vector<Request>& requests) {
  if (!strike_faults(comm, parts)) return;
  for (const auto& request : requests) {
    if (is_point_to_point(request.kind) || comm->aborted) continue;
    if (request.count > 0) Collective(comm, parts, request).run();
  }
  PointToPoint(comm, parts, requests).run();
}

}  // namespace fake_gpu
