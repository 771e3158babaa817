// Carries out what a cycle says, and records it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "collective/group.h"
#include "negotiate/response_cache.h"
#include "runtime/operation.h"
#include "timeline/recorder.h"
#include "wire/message.h"

namespace hvdtune {

// Thread rule: the cycle thread.
class Executor : private Observer {
 public:
  Executor(Mesh& mesh, const StopSignal& stop, OperationTable& table, ResponseCache& cache,
           Recorder& recorder, Recorder::Lane& lane);

  // Runs the buckets of a cycle in order. Operations complete, or fail by themselves when the ranks
  // disagree about them; an Error thrown here ends the job.
  void execute(const Cycle& cycle, const Setting& setting, uint64_t received_ns);

 private:
  struct Member {
    const Response* response;
    std::shared_ptr<Operation> operation;
    uint32_t name;
    uint32_t seq;
  };
  void bucket(std::span<const Response> responses, const Setting& setting, CutReason reason,
              uint64_t received_ns);
  void run(std::span<const Member> members, const Setting& setting);
  void run_allgather(const Member& member);
  void record_negotiation(const Member& member, uint64_t received_ns);
  void record_execution(std::span<const Member> members, CutReason reason, uint64_t received_ns,
                        uint64_t begin_ns);
  uint32_t name_id(const std::string& name);
  void phase(Phase phase, uint64_t begin_ns, uint64_t end_ns, size_t bytes) override;

  Group group_;
  OperationTable& table_;
  ResponseCache& cache_;
  Recorder& recorder_;
  Recorder::Lane& lane_;
  std::unordered_map<std::string, uint32_t> name_ids_;
  uint32_t next_seq_ = 0;
  uint32_t bucket_ = 0;
};

}  // namespace hvdtune
