// Carries out what a cycle says, and records it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collective/backend.h"
#include "collective/group.h"
#include "collective/payload.h"
#include "negotiate/process_sets.h"
#include "negotiate/response_cache.h"
#include "runtime/gpu/gpu_thread.h"
#include "runtime/operation.h"
#include "runtime/services.h"
#include "wire/message.h"

namespace hvdtune {

// Thread rule: the cycle thread.
class Executor : private Observer {
 public:
  // Told of responses that change process sets or end a join, in their place among the others.
  using Change = std::function<void(const Response&)>;

  // `backends`, null for none, offers collectives in place of ours.
  Executor(const Services& services, BackendSource* backends, ResponseCache& cache,
           const ProcessSets& sets, Change change);

  // Runs the buckets of a cycle in order. Operations complete, or fail by themselves when the ranks
  // disagree about them; an Error thrown here ends the job.
  void execute(const Cycle& cycle, const Setting& setting, uint64_t received_ns);
  void drop_group(uint32_t process_set) {
    groups_.erase(process_set);
    columns_.erase(process_set);
    offered_.erase(process_set);
  }

 private:
  struct Member {
    const Response* response;
    std::shared_ptr<Operation> operation;  // null: this rank has joined
    uint32_t name;
    uint32_t seq;
  };
  struct Execution;
  void bucket(std::span<const Response> responses, const Setting& setting, CutReason reason,
              uint64_t received_ns);
  void fail_refused(std::span<const Response> responses);
  bool take(const Response& response, std::vector<Member>& members);
  void run(std::span<const Member> members, const Setting& setting);
  Group& group_of(uint32_t process_set);
  struct GpuBucket;
  void hand_to_gpu(std::span<const Member> members, const Setting& setting, CutReason reason);
  static GpuTask task_for_set(const Group& group);
  static GpuTask task_within_host(const Group& group);
  NcclId share_id(uint32_t process_set, bool within_host, const Setting& setting);
  Group& column_of(uint32_t process_set);
  std::vector<GpuRecord> records_of(std::span<const Member> members, CutReason reason);
  Backend* backend_of(uint32_t process_set);
  uint8_t* spare(size_t bytes);
  void record_negotiation(const Member& member, uint64_t received_ns);
  void record_execution(std::span<const Member> members, CutReason reason, uint64_t received_ns,
                        uint64_t begin_ns);
  uint32_t name_id(const Member& member);
  uint32_t reason_id(CutReason reason);
  // Asked at every piece of work, recorded or not.
  bool enabled() const override {
    work_counter_.moved();
    return recorder_.enabled();
  }
  void phase(Phase phase, uint64_t begin_ns, uint64_t end_ns, size_t bytes, int peer) override;

  Mesh& mesh_;
  BackendSource* backends_;
  const StopSignal& stop_;
  const RankLease& lease_;
  OperationTable& table_;
  ResponseCache& cache_;
  const ProcessSets& sets_;
  Change change_;
  WorkCounter& work_counter_;
  Recorder& recorder_;
  Recorder::EventBuffer& events_;
  GpuThread* const gpu_;
  ScratchBuffers scratch_;
  ScratchBuffers spare_;              // stands in for the tensors of a rank that has joined
  std::map<uint32_t, Group> groups_;  // by process set
  std::map<uint32_t, Group> columns_;
  std::map<uint32_t, std::unique_ptr<Backend>> offered_;
  std::map<uint32_t, uint32_t> next_seq_;
  std::unordered_map<std::string, uint32_t> name_ids_;
  std::array<uint32_t, kCutReasonCount> reason_ids_{};
  uint32_t bucket_ = 0;  // counts those of all process sets, so that every rank means the same
};

}  // namespace hvdtune
