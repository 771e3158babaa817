#include "collective/choose.h"

#include "check.h"

using namespace hvdtune;

namespace {

constexpr GroupShape kAloneRank{1, 1, true, false};
constexpr GroupShape kHost{4, 1, true, true};
constexpr GroupShape kHostWithoutMemory{4, 1, true, false};
constexpr GroupShape kTwoHosts{4, 2, true, true};
constexpr GroupShape kTwoHostsWithoutMemory{4, 2, true, false};
constexpr GroupShape kOneEach{4, 4, true, false};
constexpr GroupShape kCrowd{16, 2, true, true};
constexpr GroupShape kUneven{3, 2, false, true};

Setting with(bool Setting::* knob) {
  Setting setting;
  setting.*knob = true;
  return setting;
}

const Setting kFlat;
const Setting kHierarchical = with(&Setting::hierarchical_allreduce);
const Setting kGather = with(&Setting::hierarchical_allgather);
const Setting kTorus = with(&Setting::torus_allreduce);

constexpr size_t kSmall = 1000;
constexpr size_t kBig = 1 << 20;

}  // namespace

TEST(the_table_says) {
  using enum OpType;
  struct Expectation {
    OpType op;
    size_t bytes;
    GroupShape shape;
    Setting setting;
    Algorithm algorithm;
  };
  const Expectation expectations[] = {
      {kAllreduce, kBig, kAloneRank, kHierarchical, Algorithm::kAlone},
      {kAllreduce, kSmall, kHost, kFlat, Algorithm::kShared},
      {kAllreduce, kBig, kHost, kTorus, Algorithm::kShared},
      {kAllreduce, kSmall, kHostWithoutMemory, kFlat, Algorithm::kDoubling},
      {kAllreduce, kBig, kHostWithoutMemory, kTorus, Algorithm::kDirect},
      {kAllreduce, kBig, kTwoHosts, kFlat, Algorithm::kDirect},
      {kAllreduce, kBig, kTwoHosts, kHierarchical, Algorithm::kHierarchical},
      {kAllreduce, kBig, kTwoHosts, kTorus, Algorithm::kTorus},
      {kAllreduce, kBig, kTwoHostsWithoutMemory, kHierarchical, Algorithm::kDirect},
      {kAllreduce, kBig, kOneEach, kHierarchical, Algorithm::kHierarchical},
      {kAllreduce, kBig, kOneEach, kTorus, Algorithm::kDirect},
      {kAllreduce, kBig, kUneven, kHierarchical, Algorithm::kDirect},
      {kAllgather, kBig, kHost, kFlat, Algorithm::kShared},
      {kAllgather, kSmall, kTwoHosts, kFlat, Algorithm::kDirect},
      {kAllgather, kSmall, kCrowd, kFlat, Algorithm::kDoubling},
      {kAllgather, kBig, kCrowd, kFlat, Algorithm::kRing},
      {kAllgather, kBig, kTwoHosts, kFlat, Algorithm::kRing},
      {kAllgather, kBig, kTwoHosts, kGather, Algorithm::kHierarchical},
      {kAllgather, kBig, kUneven, kGather, Algorithm::kRing},
      {kAllgather, kBig, kOneEach, kGather, Algorithm::kDirect},
      {kBroadcast, kSmall, kHost, kFlat, Algorithm::kShared},
      {kBroadcast, kSmall, kTwoHosts, kFlat, Algorithm::kTree},
      {kBroadcast, kBig, kTwoHosts, kFlat, Algorithm::kHierarchical},
      {kBroadcast, kBig, kUneven, kFlat, Algorithm::kChain},
      {kReducescatter, kBig, kHost, kFlat, Algorithm::kShared},
      {kReducescatter, kBig, kTwoHosts, kHierarchical, Algorithm::kDirect},
  };
  for (const Expectation& row : expectations) {
    CHECK_EQ(name_of(choose(row.op, row.bytes, row.shape, row.setting)), name_of(row.algorithm));
  }
}

TEST(a_name_is_obeyed_wherever_there_is_someone_to_talk_to) {
  Setting setting;
  setting.allreduce_algorithm = AllreduceChoice::kRing;
  for (const GroupShape& shape : {kHost, kTwoHosts, kUneven}) {
    CHECK(choose(OpType::kAllreduce, kBig, shape, setting) == Algorithm::kRing);
  }
  CHECK(choose(OpType::kAllreduce, kBig, kAloneRank, setting) == Algorithm::kAlone);
  CHECK(choose(OpType::kBroadcast, kBig, kHost, setting) == Algorithm::kShared);
  setting.allreduce_algorithm = AllreduceChoice::kTree;
  CHECK(choose(OpType::kAllreduce, kBig, kHost, setting) == Algorithm::kTree);
}

TEST(without_a_name_every_allreduce_is_canonical) {
  for (const Setting& setting : {kFlat, kHierarchical, kGather, kTorus}) {
    for (const GroupShape& shape : {kAloneRank, kHost, kHostWithoutMemory, kTwoHosts,
                                    kTwoHostsWithoutMemory, kOneEach, kUneven}) {
      for (size_t bytes = 0; bytes < size_t{1} << 40; bytes = 2 * bytes + 1) {
        CHECK(is_canonical(choose(OpType::kAllreduce, bytes, shape, setting)));
      }
    }
  }
}

TEST(gpus_of_equal_hosts_with_several_each_leave_what_goes_between_them_to_others) {
  CHECK(splits_at_hosts(kTwoHosts, kHierarchical));
  CHECK(splits_at_hosts(kTwoHostsWithoutMemory, kHierarchical));
  CHECK(!splits_at_hosts(kTwoHosts, kFlat));
  CHECK(!splits_at_hosts(kTwoHosts, kTorus));
  for (const GroupShape& shape : {kAloneRank, kHost, kOneEach, kUneven}) {
    CHECK(!splits_at_hosts(shape, kHierarchical));
  }
}
