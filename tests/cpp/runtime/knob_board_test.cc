#include "runtime/steering/knob_board.h"

#include "check.h"

using namespace hvdtune;

namespace {

Setting with_chunk(int64_t bytes) {
  Setting setting;
  setting.chunk_bytes = bytes;
  return setting;
}

}  // namespace

TEST(a_proposal_replaces_one_that_was_not_sent) {
  KnobBoard board(Setting{}, 2);
  board.stage({1, with_chunk(65536)});
  board.stage({2, with_chunk(131072)});
  CHECK(board.take_staged()->version == 2);
  CHECK(!board.has_staged());
  CHECK(!board.take_staged());
  CHECK_EQ(board.version(), 0U);
}

TEST(adoption_is_complete_when_the_last_rank_says_so) {
  KnobBoard board(Setting{}, 3);
  board.adopt(5, with_chunk(65536), 100);
  CHECK_EQ(board.setting().chunk_bytes, 65536);
  CHECK(!board.acknowledge(0, 5));
  CHECK(!board.acknowledge(2, 5));
  CHECK(!board.acknowledge(2, 5));
  CHECK(board.acknowledge(1, 5));
  CHECK(!board.acknowledge(1, 5));
}

TEST(an_interval_has_the_version_that_held_all_the_while) {
  KnobBoard board(Setting{}, 1);
  CHECK_EQ(board.version_between(10, 20, 0), 0);
  board.adopt(1, Setting{}, 100);
  board.adopt(2, Setting{}, 200);
  CHECK_EQ(board.version_between(120, 180, 0), 1);
  CHECK_EQ(board.version_between(150, 200, 0), -1);
  CHECK_EQ(board.version_between(150, 250, 0), -1);
  CHECK_EQ(board.version_between(200, 250, 0), 2);
}

TEST(a_step_with_other_values_of_the_script_has_no_version) {
  KnobBoard board(Setting{}, 1);
  Setting changed;
  changed.script = {{"script.accumulate", "2"}};
  board.adopt(1, changed, 100);
  CHECK_EQ(board.version_between(110, 120, 0), -1);
  CHECK_EQ(board.version_between(110, 120, 1), 1);
  CHECK_EQ(board.version_between(80, 90, 0), 0);
  changed.chunk_bytes = 65536;
  board.adopt(2, changed, 200);
  CHECK_EQ(board.script_version(), 1U);
  CHECK_EQ(board.version_between(210, 220, 1), 2);
}

TEST(what_changes_the_script_is_adopted_when_the_last_rank_has_answered) {
  KnobBoard board(Setting{}, 1);
  Setting changed;
  changed.script = {{"script.accumulate", "2"}};
  CHECK(board.changes_script({3, changed}));
  CHECK(!board.changes_script({3, with_chunk(65536)}));
  board.prepare({3, changed}, 2);
  board.note_hold({0, 3, 7});
  board.note_hold({1, 2, 90});  // an answer to another version
  CHECK(!board.can_switch());
  board.note_hold({1, 3, 8});
  CHECK(board.can_switch());
  CHECK_EQ(board.most_passed(), 8U);
  CHECK_EQ(board.take_prepared()->version, 3U);
  CHECK(!board.is_prepared());
}
