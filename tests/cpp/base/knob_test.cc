#include "base/knob.h"

#include "check.h"

using namespace hvdtune;

TEST(the_default_lies_within_every_range) {
  const Setting setting;
  for (const Knob& knob : knob_table()) {
    Setting copy;
    set_knob(copy, knob.name, knob.get(setting));
    CHECK(copy == setting);
  }
}

TEST(a_value_out_of_range_is_refused_and_changes_nothing) {
  Setting setting;
  CHECK_THROWS(ErrorCode::kUsage, set_knob(setting, "cycle_time_ms", 51));
  CHECK_THROWS(ErrorCode::kUsage, set_knob(setting, "chunk_bytes", 65536.5));
  CHECK_THROWS(ErrorCode::kUsage, set_knob(setting, "no_such_knob", 1));
  CHECK(setting == Setting{});
}

TEST(a_choice_has_a_name) {
  const Knob& knob = *find_knob("allreduce_algorithm");
  Setting setting;
  set_knob(setting, knob.name, choice_value(knob, "chain"));
  CHECK(setting.allreduce_algorithm == AllreduceChoice::kChain);
  CHECK_THROWS(ErrorCode::kUsage, choice_value(knob, "chains"));
  CHECK_THROWS(ErrorCode::kUsage, set_knob(setting, knob.name, 7));
}

TEST(a_setting_is_written_as_json_in_table_order) {
  CHECK_EQ(to_json(Setting{}),
           "{\"fusion_threshold_bytes\": 134217728, \"cycle_time_ms\": 1, \"chunk_bytes\": 524288, "
           "\"hierarchical_allreduce\": false, \"hierarchical_allgather\": false, "
           "\"torus_allreduce\": false, \"allreduce_algorithm\": \"auto\", \"cache_enabled\": "
           "true, \"cache_capacity\": 1024, \"channels\": 1}");
}
