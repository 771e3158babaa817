// Messages that use every field.
#pragma once

#include <string>

#include "wire/message.h"
#include "wire/report.h"

namespace hvdtune::testing {

inline Request sample_request(const std::string& name) {
  Request request;
  request.op = OpType::kAllreduce;
  request.reduce_op = ReduceOp::kAverage;
  request.root = 3;
  request.prescale = 0.25;
  request.postscale = 4.0;
  request.name = name;
  request.process_set = 2;
  request.tensors = {{DType::kBfloat16, {5, 0, 7}}, {DType::kBool, {}}};
  request.splits = {3, 2};
  request.on_gpu = true;
  request.in_graph = true;
  return request;
}

inline Announce sample_announce() {
  Announce announce;
  announce.adopted_version = 4;
  announce.cycles_seen = 1234567890123;
  announce.cycles_applied = 1234567890124;
  announce.waiting = true;
  announce.cached = {1, 70000};
  announce.leaving = {6};
  announce.partly = {{7, {0, 3}}};
  announce.requests = {{sample_request("layer.weight"), {1, 2}}, {sample_request(""), {4}}};
  announce.steps = {{1, 8, 1'000'000}, {2, 9, 2'000'000}};
  announce.holds = {{2, 5, 40}};
  return announce;
}

inline TimelineOrder sample_timeline_order() { return {true, "/run/rank-%r.hvt", 1 << 20}; }

inline Cycle sample_cycle() {
  Cycle cycle;
  cycle.number = 99;
  cycle.setting_version = 2;
  cycle.setting = Setting{};
  cycle.setting->hierarchical_allreduce = true;
  cycle.setting->script = {{"script.accumulate", "2"}};
  cycle.prepares = 3;
  cycle.switch_at = 42;
  cycle.responses.resize(3);
  cycle.responses[0].request = sample_request("a");
  cycle.responses[0].first_dims = {1, 2, 3};
  cycle.responses[0].cache_id = 17;
  cycle.responses[1].compact = true;
  cycle.responses[1].cache_id = 16;
  cycle.responses[2].request = sample_request("b");
  cycle.responses[2].error = "the ranks disagree";
  cycle.buckets = {{2, CutReason::kThreshold}, {1, CutReason::kAlone}};
  cycle.evicted = {5};
  cycle.departed = {1};
  cycle.timeline = sample_timeline_order();
  return cycle;
}

inline RankReport sample_report() {
  return {7,
          2,
          "  File \"train.py\", line 3 in step\n",
          1,
          {{0, false, 5, "x", "allreduce", GpuProgress::kWaits}, {3, true, 6, "join", "join"}},
          true,
          1234567890125};
}

}  // namespace hvdtune::testing
